import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.distillation import _gossip as gossip
from pfljax.conformance import toy


def cohort(ids, mask, num_clients):
    ids = jnp.asarray(ids)
    return toy.cohort(mask, num_clients)._replace(ids=ids)


def test_the_ring_of_the_docstring():
    """Client 2 is absent, and another who stands there is nobody."""
    asked = cohort([3, 0, 4, 1], [1.0, 1, 0, 1], 4)
    edges = gossip.edges("ring", asked)
    # In the order 3 0 - 1.
    np.testing.assert_array_equal(
        edges, [[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]
    )
    third = 1 / 3
    wanted = [[2, 1, 0, 0], [1, 1, 0, 1], [0, 0, 3, 0], [0, 1, 0, 2]]
    weights = gossip.metropolis(edges)
    np.testing.assert_allclose(weights, third * np.array(wanted), atol=1e-6)


@pytest.mark.parametrize("graph", gossip.GRAPHS)
@pytest.mark.parametrize("num_clients", [1, 6])
def test_weights_are_doubly_stochastic(graph, num_clients):
    everybody = cohort(np.arange(num_clients), np.ones(num_clients), num_clients)
    weights = np.asarray(gossip.metropolis(gossip.edges(graph, everybody)))
    np.testing.assert_allclose(weights.sum(0), 1, rtol=1e-6)
    np.testing.assert_allclose(weights, weights.T)
    assert (weights >= -1e-6).all()
    neighbours = (weights > 0).sum(1) - 1
    most = num_clients - 1 if graph == "complete" else min(2, num_clients - 1)
    np.testing.assert_array_equal(neighbours, most)


def test_a_complete_graph_weighs_all_alike():
    everybody = cohort([4, 2, 0], np.ones(3), 5)
    weights = gossip.metropolis(gossip.edges("complete", everybody))
    np.testing.assert_allclose(weights, 1 / 3, rtol=1e-6)
