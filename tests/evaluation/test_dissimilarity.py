"""FedProx's measures of how clients differ, on quadratics whose gradients are known."""

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.conformance import toy
from pfljax.core.types import ClientData
from pfljax.evaluation.dissimilarity import dissimilarity

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


def test_a_client_without_rows_has_no_weight():
    data = toy.quadratic_clients()
    more = ClientData(data.examples, jnp.r_[data.offset, 0], jnp.r_[data.size, 0])
    toy.assert_close(found_at(more), found_at(data), 1e-6)
