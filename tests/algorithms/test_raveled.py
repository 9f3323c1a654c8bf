import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import algorithms
from pfljax.algorithms import _raveled as raveled
from pfljax.algorithms.bayesian import _gaussian as gaussian
from pfljax.conformance import toy
from pfljax.core import statistics, tree
from pfljax.core.communication import trace_exchanges

KEY = jax.random.key(0)
MODEL = {
    "dense": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.array([7.0, 8, 9])},
    "norm": {
        "scale": jnp.array([1.5, 2.5]),
        "batch_stats": {"mean": jnp.array([4.0, 5.0]), "var": jnp.array([0.5, 0.25])},
    },
}


def loss(params, batch, key):
    """Of parameters half their square; statistics are followed to 1."""
    running, parameters = tree.split(params, statistics.mask(params))
    half = tree.square_norm(parameters) / 2
    return statistics.following(half, running, jax.tree.map(jnp.ones_like, running))


TASK = toy.quadratic()._replace(init=lambda key: tree.zeros(MODEL), loss=loss)
unravel = raveled.unraveling(TASK)


def test_parameters_and_statistics_are_a_vector_each_and_come_back():
    vectors = raveled.ravel(MODEL)
    assert list(vectors) == ["parameters", "batch_stats"]
    np.testing.assert_array_equal(
        vectors["parameters"], [7, 8, 9, 0, 1, 2, 3, 4, 5, 1.5, 2.5]
    )
    np.testing.assert_array_equal(vectors["batch_stats"], [4, 5, 0.5, 0.25])
    toy.assert_same(unravel(vectors), MODEL)
    # Methods know statistics by their key, in vectors as in leaves.
    assert statistics.mask(vectors) == {"parameters": False, "batch_stats": True}


def test_what_has_no_statistics_has_none_in_their_place():
    """The spread of a Gaussian, a model without statistics, and no model at all."""
    spread = gaussian.around(raveled.ravel(MODEL), 0.5).spread
    assert spread["batch_stats"] is None
    leaves = unravel(spread)
    assert leaves["norm"]["batch_stats"] == {"mean": None, "var": None}
    assert leaves["dense"]["kernel"].shape == (2, 3)
    plain = {"dense": MODEL["dense"]}
    vectors = raveled.ravel(plain)
    assert vectors["batch_stats"] is None
    of_plain = raveled.unraveling(TASK._replace(init=lambda key: tree.zeros(plain)))
    toy.assert_same(of_plain(vectors), plain)
    assert unravel(()) == ()


def test_slopes_of_a_raveled_task_are_those_of_its_leaves():
    vectors = raveled.ravel(MODEL)
    value, slope = jax.value_and_grad(raveled.ravel_task(TASK).loss)(vectors, None, KEY)
    wanted, slope_of_leaves = jax.value_and_grad(loss)(MODEL, None, KEY)
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    toy.assert_close(unravel(slope), slope_of_leaves, 1e-6)
    np.testing.assert_array_equal(slope["batch_stats"], [3, 4, -0.5, -0.75])


@pytest.mark.parametrize("name", ["virtual", "pfedbayes"])
def test_leaves_are_sent_though_clients_keep_vectors(name):
    """A compressor acts on each leaf, and on no vector of all."""
    task = toy.quadratic()
    method = algorithms.method(name)(task, toy.full_batch())
    sent, *_ = trace_exchanges(method, task, 4, (4,))
    leaves = jax.tree.structure(task.init(KEY))
    assert [jax.tree.structure(part) for part in sent.upload] == [leaves, leaves]
    assert jax.tree.structure(sent.message) == jax.tree.structure(sent.upload)
