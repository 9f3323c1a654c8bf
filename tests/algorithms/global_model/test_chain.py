from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.algorithms.global_model import _chain as chain
from pfljax.algorithms.global_model import _units as units
from pfljax.conformance import toy
from pfljax.core import components
from pfljax.core.types import Batch
from pfljax.models import layers

SIZES = (3, 5, 4)  # of the hidden layers
BODY = [
    layers.add_channel,
    nn.Conv(3, (3, 3)),
    nn.relu,
    models.max_pool,
    layers.flatten,
    models.Linear(5),
    nn.relu,
    nn.Dense(4, use_bias=False),
    nn.relu,
]
ROWS = Batch.full(np.random.default_rng(0).normal(size=(6, 4, 6)))


@cache
def network(growth=1.0):
    """A convolution, two kinds of dense layers and a head, of pixels and without."""
    model = models.Network(nn.Sequential(BODY), nn.Dense(3))
    task = models.task(model, (4, 6))
    rng = np.random.default_rng(1)
    params = task.init(jax.random.key(0))
    params = jax.tree.map(lambda w: w + rng.normal(size=w.shape), params)
    return task, chain.make_chain("a test", task, growth), jax.device_get(params)


def predicted(task, params):
    return jax.jit(task.predict)(params, ROWS)


def by_eye(params):
    """The rows of each layer, with what the flattened images have in their order."""
    body, head = params["body"], params["head"]
    conv, linear, dense = (body[f"layers_{i}"] for i in (1, 5, 7))
    return [
        np.c_[conv["kernel"].reshape(9, -1).T, conv["bias"]],
        np.c_[linear["kernel"], linear["bias"]],
        dense["kernel"].T,
        np.c_[head["kernel"].T, head["bias"]],
    ]


@pytest.mark.slow
def test_rows_are_what_goes_into_a_unit_and_can_be_put_back():
    _, model, params = network()
    every = [*model.hidden, model.logits]
    assert [layer.size for layer in every] == [*SIZES, 3]
    nothing = jax.tree.map(jnp.zeros_like, params)
    for layer, wanted in zip(every, by_eye(params), strict=True):
        rows = units.get_rows(params, layer)
        np.testing.assert_array_equal(rows, wanted)
        nothing = units.set_rows(nothing, layer, rows)
    toy.assert_same(nothing, params)


def test_a_chain_of_permuted_units_computes_the_same():
    task, model, params = network()
    rng = np.random.default_rng(2)
    orders = [rng.permutation(size) for size in SIZES]
    permuted = chain.reorder(params, model, orders)
    assert not np.array_equal(by_eye(permuted)[1], by_eye(params)[1])
    wanted = predicted(task, params)
    assert np.ptp(np.asarray(wanted), 0).min() > 0.1
    np.testing.assert_allclose(predicted(task, permuted), wanted, rtol=1e-4)
    back = map(np.argsort, orders)
    toy.assert_same(chain.reorder(permuted, model, list(back)), params)


@pytest.mark.slow
def test_a_model_computes_the_same_in_the_wider_network():
    task, model, params = network(1.5)
    assert model.sizes == (5, 8, 6)
    wider = chain.widen(params, model)
    expected = jax.eval_shape(model.task.init, jax.random.key(0))
    assert jax.tree.map(jnp.shape, wider) == jax.tree.map(jnp.shape, expected)
    for rows, size in zip(by_eye(wider), SIZES, strict=False):
        assert rows[:size].any(1).all()
        assert not rows[size:].any()
    wanted = predicted(task, params)
    np.testing.assert_allclose(predicted(model.task, wider), wanted, rtol=1e-4)
    own = [jnp.arange(size) for size in SIZES]
    toy.assert_same(chain.reorder(wider, model, own), params)


@pytest.mark.slow
def test_zeros_behind_the_units_have_no_gradient():
    _, model, params = network(1.5)
    wider = chain.widen(params, model)
    slope = jax.jit(jax.grad(model.task.loss))(wider, ROWS, None)
    mask = jax.tree.map(jnp.ones_like, params)
    outside = jax.tree.map(lambda one: one == 0, chain.widen(mask, model))
    for leaf, zero in zip(*map(jax.tree.leaves, (slope, outside)), strict=True):
        assert not leaf[zero].any()
    assert all(leaf.any() for leaf in jax.tree.leaves(slope))


def test_another_layer_is_read_where_the_units_are_in_it():
    """Its rows are the layer's own in another order, one of nobody's among them."""
    task, model, params = network(1.5)
    wider = chain.widen(params, model)
    assignment = jnp.array([3, 7, 0, 4, 6])
    rows = np.random.default_rng(3).normal(size=(8, wider_inputs()))
    rows[assignment] = units.get_rows(wider, model.hidden[1])[:5]
    found = units.replace_layer(wider, model.hidden[1], jnp.float32(rows), assignment)
    np.testing.assert_allclose(units.get_rows(found, model.hidden[1]), rows, rtol=1e-6)
    wanted = predicted(task, params)
    np.testing.assert_allclose(predicted(model.task, found), wanted, rtol=1e-4)


def wider_inputs():
    """Columns of the second layer: 2 x 3 pixels of 5 channels, and a bias."""
    return 2 * 3 * 5 + 1


REFUSED = {
    "gn_cnn": ((28, 28), "body/layers_2 normalises"),
    "resnet9": ((32, 32, 3), "body/layers_2/GroupNorm_0 normalises"),
    "resnet9:norm=batch_running": ((32, 32, 3), "body/layers_2 normalises"),
    "char_lstm": ((8,), "body/layers_1 is recurrent"),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if "resnet9" in name else ())
        for name in REFUSED
    ],
)
def test_a_model_that_is_no_chain_is_refused(name):
    shape, reason = REFUSED[name]
    choice = components.parse(name)
    task = models.task(models.model(choice.name, 10, **choice.options), shape)
    expected = f"a test cannot match the units of this model: {reason}.*; choose one"
    with pytest.raises(ValueError, match=expected):
        chain.make_chain("a test", task, 1.0)


def test_a_task_that_does_not_tell_its_units_is_refused():
    with pytest.raises(ValueError, match="it does not say what they are; choose"):
        chain.make_chain("a test", toy.quadratic(), 1.0)


@pytest.mark.parametrize(
    ("growth", "places"), [(1.0, 10), (1.1, 11), (1.11, 12), (90.0, 700)]
)
def test_the_network_grows_by_what_is_asked(growth, places):
    task = models.task(models.mlp(3, hidden=(10, 800)), (3,))
    assert chain.make_chain("a test", task, growth).sizes == (places, 800)
