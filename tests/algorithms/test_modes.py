"""Evaluation mode depends on no key, because dropout is off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.algorithms.clustering.ifca import ifca
from pfljax.algorithms.global_model.scaffold import scaffold
from pfljax.algorithms.meta_learning.per_fedavg import per_fedavg
from pfljax.conformance import toy
from pfljax.core import tree
from pfljax.core.minibatches import take_examples
from pfljax.core.types import Local

BODY = nn.Sequential([nn.Dense(8), nn.relu, models.Dropout(0.5)])
TASK = toy.traced_once(models.task(models.Network(BODY, nn.Dense(3)), (3,)))
LOCAL = Local(0.1, batch_size=4)
DATA = toy.one(toy.ragged()[0], 1)
SIZE = int(DATA.size)
KEYS = jax.random.split(jax.random.key(5), 16)
PARAMS = TASK.init(jax.random.key(1))


def of_keys(function):
    """`function` of a turn, for 16 keys of the same round, stacked."""
    return jax.jit(jax.vmap(lambda key: function(toy.turn(key, 1, 1, 1))))(KEYS)


def all_examples():
    return take_examples(DATA, jnp.arange(SIZE), jnp.ones(SIZE))


def assert_no_key_matters(stacked):
    chosen = jax.tree.map(lambda leaf: np.asarray(leaf[:1]), stacked)
    everywhere = jax.tree.map(lambda a, b: np.broadcast_to(a, b.shape), chosen, stacked)
    toy.assert_same(stacked, everywhere)


def close_models():
    """Two models whose losses differ by less than dropout moves either."""
    other = jax.tree.map(lambda leaf: leaf * 1.001, PARAMS)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), PARAMS, other)


@pytest.mark.parametrize(
    "averaging", ["models", pytest.param("gradients", marks=pytest.mark.slow)]
)
def test_the_cluster_is_chosen_without_dropout(averaging):
    server = close_models()
    method = ifca(TASK, LOCAL, averaging=averaging)

    def choice(turn):
        _, upload, _ = method.train(turn, server, (), DATA)
        return upload.choice

    def noisy_choice(turn):
        first, second = jax.random.split(turn.key)
        losses = [
            TASK.loss(tree.take(server, j), all_examples(), key)
            for j, key in enumerate((first, second))
        ]
        return losses[0] < losses[1]

    losses = [TASK.loss(tree.take(server, j), all_examples(), None) for j in range(2)]
    np.testing.assert_array_equal(
        of_keys(choice), np.tile(np.eye(2)[np.argmin(losses)], (len(KEYS), 1))
    )
    assert 0 < of_keys(noisy_choice).sum() < len(KEYS)  # dropout would matter


def test_scaffolds_variate_of_all_examples_is_without_dropout():
    method = scaffold(TASK, LOCAL, option="I")
    server = method.init(PARAMS, 4, KEYS[0])
    c_k = method.init_client(PARAMS, jnp.int32(1), KEYS[0])

    def train(turn):
        c_new, upload, _ = method.train(turn, server, c_k, DATA)
        return c_new, upload.dy

    variates, moves = of_keys(train)
    assert_no_key_matters(variates)
    expected = jax.grad(TASK.loss)(PARAMS, all_examples(), None)
    toy.assert_close(jax.tree.map(lambda leaf: leaf[0], variates), expected, 1e-6)
    kernels = np.asarray(moves["head"]["kernel"])
    assert not np.allclose(kernels[0], kernels[1])  # training has dropout


def test_per_fedavg_adapts_without_dropout():
    method = per_fedavg(TASK, LOCAL, inner_lr=0.3)
    evaluated = of_keys(lambda turn: method.personal(turn, PARAMS, (), DATA))
    assert_no_key_matters(evaluated)
    slope = jax.grad(TASK.loss)(PARAMS, all_examples(), None)
    expected = tree.axpy(-0.3, slope, PARAMS)
    toy.assert_close(jax.tree.map(lambda leaf: leaf[0], evaluated), expected, 1e-6)
