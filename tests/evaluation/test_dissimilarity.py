"""FedProx's measures of how clients differ, on quadratics whose gradients are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.conformance import toy
from pfljax.core.types import ClientData
from pfljax.evaluation.dissimilarity import dissimilarity, expected_decrease

KEY, W = jax.random.key(0), np.array([1.0, -2.0, 3.0])


@jax.jit
def found_at(data):
    return dissimilarity(toy.quadratic(), toy.unflat(W), data, batch_size=2)


def test_against_numpy():
    gradients = np.array([toy.gradient(k, W) for k in range(4)])
    share = toy.COUNTS / toy.COUNTS.sum()
    mean = share @ gradients
    size = share @ (gradients**2).sum(1)
    apart = share @ ((gradients - mean) ** 2).sum(1)
    found = found_at(toy.quadratic_clients())
    np.testing.assert_allclose(found.b, np.sqrt(size / (mean @ mean)), rtol=1e-5)
    np.testing.assert_allclose(found.variance, apart, rtol=1e-5)
    np.testing.assert_allclose(found.gradient, np.linalg.norm(mean), rtol=1e-5)
    losses = toy.A / 2 * ((W - toy.B) ** 2).sum(1)
    np.testing.assert_allclose(found.loss, share @ losses, rtol=1e-5)
    assert found.b > 1.1


def test_the_variance_is_what_exceeds_one():
    found = found_at(toy.quadratic_clients())
    gradients = [toy.gradient(k, W) for k in range(4)]
    mean = np.average(gradients, axis=0, weights=toy.COUNTS)
    bound = (found.b**2 - 1) * mean @ mean
    np.testing.assert_allclose(found.variance, bound, rtol=1e-4)


def test_of_identical_clients_b_is_one():
    data = toy.quadratic_clients()
    same = ClientData(data.examples, jnp.full(3, data.offset[1]), jnp.full(3, 5))
    found = found_at(same)
    np.testing.assert_allclose(found.b, 1, rtol=1e-6)
    np.testing.assert_allclose(found.variance, 0, atol=1e-8)


def test_a_client_without_examples_has_no_weight():
    data = toy.quadratic_clients()
    more = ClientData(data.examples, jnp.r_[data.offset, 0], jnp.r_[data.size, 0])
    toy.assert_close(found_at(more), found_at(data), 1e-6)


def test_it_keeps_no_gradient_of_every_client():
    """One pass whose memory is a few models, whatever the number of clients."""

    def temporary(clients):
        data = toy.quadratic_clients()
        ids = jnp.arange(clients) % 4
        many = ClientData(data.examples, data.offset[ids], data.size[ids])
        compiled = found_at.lower(many).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    # The sizes and shares of clients are there: not their gradients of 12 bytes.
    assert temporary(4000) - temporary(40) < 3960 * 12


LIMIT = {"gamma": 0.0, "smoothness": 1.0}


def test_rho_against_the_theorem_by_hand():
    found = expected_decrease(
        mu=2.0, gamma=0.1, b=1.5, smoothness=0.5, cohort=4, concavity=0.4
    )
    # mu - L_- = 1.6, B (1 + gamma) = 1.65, sqrt(K) = 2.
    expected = 0.5 - 0.075 - 2**0.5 * 1.65 / 3.2 - 0.5 * 1.65 / 3.2
    expected += -0.5 * 1.65**2 / (2 * 2.56)
    expected += -0.5 * 1.65**2 * (2 * 8**0.5 + 2) / (2.56 * 4)
    assert found == pytest.approx(expected)


def test_rho_of_convex_functions_solved_exactly():
    """mu = 6 L B^2 gives about 1 / (24 L B^2), where 1 << B <= sqrt(K) / 2."""
    b = 50
    found = expected_decrease(mu=6 * b**2, b=b, cohort=4 * b**2, **LIMIT)
    assert found * 24 * b**2 == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize(
    "wrong", [{"gamma": 0.5, "b": 2.0, "cohort": 10**6}, {"b": 10.0, "cohort": 100}]
)
def test_rho_promises_nothing_beyond_the_conditions(wrong):
    """gamma B < 1 and B < sqrt(K) are necessary."""
    options = LIMIT | wrong
    assert expected_decrease(mu=1e4, **options) <= 0


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"mu": 0.3, "concavity": 0.3}, "choose mu above it"),
        ({"mu": 0.0}, "mu is 0.0; expected a finite number > 0"),
        ({"gamma": -0.1}, "gamma is -0.1; expected"),
        ({"cohort": 0}, "cohort is 0; expected at least 1"),
    ],
)
def test_constants_that_cannot_be(wrong, expected):
    options: dict = {"mu": 1.0, "b": 1.0, "cohort": 4} | LIMIT | wrong
    with pytest.raises(ValueError, match=expected):
        expected_decrease(**options)
