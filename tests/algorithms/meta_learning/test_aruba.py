import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.meta_learning.aruba import aruba
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("aruba", bytes=(2 * toy.WHOLE, 2 * toy.WHOLE)),
    Case(
        "aruba",
        {"isotropic": True, "finetune": 2},
        bytes=(toy.WHOLE + 4, toy.WHOLE + 4),
    ),
]
ZETA, POWER = 0.7, 0.5


@pytest.mark.parametrize("isotropic", [False, True])
def test_aruba_against_numpy(isotropic):
    total = np.sum if isotropic else np.asarray  # over coordinates, or none
    options = {"zeta": ZETA, "power": POWER, "isotropic": isotropic}
    states, drawn = toy.run_quadratic(aruba, **options)
    phi = toy.flat(states[0].server.phi)
    eps = toy.RATE * ZETA
    b, g = total(np.full(3, eps**2)), total(np.full(3, ZETA**2))
    for t, (ids, state) in enumerate(zip(drawn, states[1:], strict=True)):
        eta, ends = np.sqrt(b / g), []
        b = b + total(np.full(3, eps**2)) / (t + 1) ** POWER
        g = g + total(np.full(3, ZETA**2)) / (t + 1) ** POWER
        for k in ids:
            theta = phi
            for _ in range(3):
                slope = toy.gradient(k, theta)
                theta = theta - eta * slope
                g = g + total(slope**2)
            b = b + total((theta - phi) ** 2) / 2
            ends.append(theta)
        phi = np.mean(ends, axis=0)
        found = state.server
        np.testing.assert_allclose(toy.flat(found.phi), phi, rtol=1e-4, atol=1e-5)
        for wanted, sums in ((b, found.b), (g, found.g)):
            sums = sums if isotropic else toy.flat(sums)
            np.testing.assert_allclose(sums, wanted, rtol=1e-4)
    assert np.abs(eta / toy.RATE - 1).max() > 0.1  # the rates have moved


@pytest.mark.slow
def test_coordinates_in_which_clients_differ_get_larger_rates():
    """Clients of one curvature, far apart in the first coordinate alone."""
    task, local = toy.quadratic(), toy.full_batch()
    x = np.array([[1, -5.0, 1, 1], [1, 5, 1, 1]])
    train, _ = toy.deal(x, np.zeros(2), [1, 1])
    states, _ = toy.run_rounds(aruba(task, local), task, local, train, rounds=10)
    server = states[-1].server
    eta = np.sqrt(toy.flat(server.b) / toy.flat(server.g))
    assert eta[0] > 1.3 * max(eta[1:])


def test_a_client_is_fine_tuned_with_the_learned_rates():
    method = aruba(toy.quadratic(), toy.full_batch(), finetune=2)
    phi, eta = np.float32([1, -2, 3]), np.float32([0.4, 0.1, 0.2])
    server = method.init(toy.unflat(phi), 4, jax.random.key(0))
    server = server._replace(b=toy.unflat(eta**2 * 9), g=toy.unflat([9.0, 9, 9]))
    np.testing.assert_array_equal(toy.flat(method.server_model(server)), phi)
    data = toy.one(toy.quadratic_clients(), 1)
    evaluated = toy.flat(method.personal(toy.turn(), server, (), data))
    tuned = toy.descend(phi, lambda w: eta * toy.gradient(1, w), 2, 1.0)
    np.testing.assert_allclose(evaluated, tuned, rtol=1e-5)


def test_a_decay_of_the_learning_rate_lowers_the_rates():
    local = toy.full_batch()._replace(learning_rate=lambda r: 0.1 / (r + 1))
    method = aruba(toy.quadratic(), local)
    phi = np.float32([1, -2, 3])
    server = method.init(toy.unflat(phi), 4, jax.random.key(0))
    turn = toy.turn(round_=3)
    message = method.message(turn, server, ())
    data = toy.one(toy.quadratic_clients(), 1)
    _, upload, _ = method.train(turn, message, (), data)
    moved = phi - 0.1 / 4 * toy.gradient(1, phi)
    np.testing.assert_allclose(toy.flat(upload.theta), moved, rtol=1e-5)


def test_of_rate_zero_nothing_moves():
    method = aruba(toy.quadratic(), toy.full_batch(rate=0.0))
    w = toy.unflat([1.0, -2, 3])
    server = method.init(w, 4, jax.random.key(0))
    message = method.message(toy.turn(), server, ())
    data = toy.one(toy.quadratic_clients(), 1)
    _, upload, _ = method.train(toy.turn(), message, (), data)
    uploads = jax.tree.map(lambda leaf: jnp.stack([leaf]), upload)
    toy.assert_same(method.aggregate(server, uploads, toy.cohort([1.0])).phi, w)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zeta": 0.0}, r"zeta is 0\.0; expected a standard deviation"),
        ({"power": -1.0}, r"power is -1\.0; expected a finite number >= 0"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        aruba(toy.quadratic(), toy.full_batch(), **options)
