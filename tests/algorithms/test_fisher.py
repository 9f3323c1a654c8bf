import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.algorithms import _fisher as fisher
from pfljax.conformance import toy
from pfljax.core import statistics

TASK = toy.quadratic()
W = np.array([0.5, -1.0, 2.0])
K, BATCH = 3, 5  # 12 examples: two full batches and one of two


@pytest.mark.parametrize("kind", fisher.KINDS)
def test_the_diagonal_against_numpy(kind):
    data = toy.one(toy.noisy_clients(), K)
    span = slice(int(data.offset), int(data.offset) + int(data.size))
    gradients = W - np.asarray(data.examples.x)[span, 1:]
    wanted = np.zeros(3)
    for first in range(0, len(gradients), BATCH):
        batch = gradients[first : first + BATCH]
        square = (batch**2).mean(0) if kind == "examples" else batch.mean(0) ** 2
        wanted += square * len(batch) / len(gradients)
    squares = fisher.KINDS[kind]
    found = fisher.diagonal(TASK.loss, toy.unflat(W), data, BATCH, squares)
    np.testing.assert_allclose(toy.flat(found), wanted, rtol=1e-5)


def test_a_client_without_examples_has_none():
    data = toy.one(toy.noisy_clients(), K)._replace(size=jnp.int32(0))
    for squares in fisher.KINDS.values():
        found = fisher.diagonal(TASK.loss, toy.unflat(W), data, BATCH, squares)
        np.testing.assert_array_equal(toy.flat(found), 0)


@pytest.mark.slow
def test_running_statistics_have_none():
    body = nn.Sequential([nn.Dense(4), nn.BatchNorm(), nn.relu])
    task = models.task(models.Network(body, nn.Dense(3)), (3,))
    params = task.init(jax.random.key(0))
    data = toy.one(toy.ragged()[0], K)
    found = fisher.diagonal(task.loss, params, data, BATCH, fisher.example_squares)
    for path, leaf in jax.tree_util.tree_leaves_with_path(found):
        assert leaf.any() != statistics.is_statistic(path), path
