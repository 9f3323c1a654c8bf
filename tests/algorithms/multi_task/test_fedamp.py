import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attended import assert_played
from pfljax.algorithms._affinity import Models
from pfljax.algorithms.multi_task.fedamp import attract, fedamp, median
from pfljax.conformance import Case, toy

SENT = (toy.WHOLE, toy.WHOLE)
CONFORMANCE = [
    Case("fedamp", bytes=SENT),
    Case("fedamp", {"relative": True, "start": "own"}, bytes=SENT),
]

ALPHA, SIGMA, LAM = 0.9, 2.0, 0.6
OPTIONS = {"alpha": ALPHA, "sigma": SIGMA, "lam": LAM}
TASK = toy.quadratic()
KEY = jax.random.key(0)


def weights(models, heard, k, alpha, sigma, relative=False):
    """xi_k of those who have sent, in NumPy: {client: weight}."""
    square = {j: ((models[k] - models[j]) ** 2).sum() for j in heard if j != k}
    if relative and square:
        sigma = sigma * np.median(list(square.values()))
    xi = {j: alpha * np.exp(-x / sigma) / sigma for j, x in square.items()}
    total = sum(xi.values())
    if total > 1:
        xi = {j: value / total for j, value in xi.items()}
    return xi | {k: 1 - sum(xi.values())}


@pytest.mark.parametrize(
    ("start", "relative", "alpha"),
    [("cloud", False, ALPHA), ("own", True, ALPHA), ("cloud", False, 20.0)],
    ids=["cloud", "own, relative", "weights above 1"],
)
def test_fedamp_against_numpy(start, relative, alpha):
    def mixed(models, heard, k):
        xi = weights(models, heard, k, alpha, SIGMA, relative)
        return sum(weight * models[j] for j, weight in xi.items())

    options = {"alpha": alpha, "sigma": SIGMA, "lam": LAM * alpha / ALPHA}
    assert_played(fedamp, mixed, LAM / ALPHA, start, relative=relative, **options)


def test_the_weights_are_the_slope_of_the_attraction():
    """alpha A'(x) of A(x) = 1 - exp(-x / sigma), of those who have sent alone."""
    square = jnp.array([0.0, 0.3, 1.0, 9.0, 1e6])
    others = jnp.array([0.0, 1, 1, 0, 1])
    slope = jax.vmap(jax.grad(lambda x: 1 - jnp.exp(-x / SIGMA)))(square)
    found = attract(square, others, 0.5, SIGMA)
    np.testing.assert_allclose(found, 0.5 * slope * others, rtol=1e-5)


@pytest.mark.parametrize("alpha", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("width", [0.0, 1e-30, 1.0, 1e30])
def test_weights_are_never_above_one(alpha, width):
    for square in ([0.0, 0, 0], [0, 1e-6, 1e30], [1e30, 1e30, 1e30]):
        xi = attract(jnp.array(square), jnp.array([1.0, 1, 0]), alpha, width)
        assert (xi >= 0).all()
        assert float(xi.sum()) <= 1 + 1e-6


def test_the_median_is_of_others_alone():
    square = jnp.array([0.0, 3, 1, 100, 2])
    assert median(square, jnp.array([0.0, 1, 1, 0, 1])) == 2
    assert median(square, jnp.zeros(5)) == 0


def test_many_steps_find_the_proximal_solution():
    """(a b + kappa u) / (a + kappa), kappa = lam / alpha."""
    method = fedamp(TASK, toy.full_batch(), **OPTIONS)
    kappa, u = LAM / ALPHA, np.array([1.0, 2, 3])
    for k in range(4):
        turn, data = toy.turn(KEY, 0, 200), toy.one(toy.quadratic_clients(), k)
        w, _, _ = method.train(turn, toy.unflat(u), toy.unflat(u), data)
        wanted = (toy.A[k] * toy.B[k] + kappa * u) / (toy.A[k] + kappa)
        np.testing.assert_allclose(toy.flat(w), wanted, atol=1e-4)


@pytest.mark.parametrize("client_id", [2, 4])
def test_whoever_never_sent_gets_the_mean(client_id):
    """Client 2 of the run, and one of no run."""
    method = fedamp(TASK, toy.full_batch())
    params = toy.unflat(np.arange(12.0).reshape(4, 3))
    server = Models(params, jnp.array([1.0, 1, 0, 1]))
    turn = toy.turn(KEY, client_id=client_id)
    wanted = np.arange(12.0).reshape(4, 3)[[0, 1, 3]].mean(0)
    for found in (method.message(turn, server, ()), method.newcomer(turn, server, ())):
        np.testing.assert_allclose(toy.flat(found), wanted, rtol=1e-6)


@pytest.mark.parametrize("option", ["alpha", "sigma"])
def test_a_rate_of_zero_is_refused(option):
    with pytest.raises(ValueError, match=f"^fedamp: {option} is 0.0; expected"):
        fedamp(TASK, toy.full_batch(), **{option: 0.0})
