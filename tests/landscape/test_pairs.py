"""Lines between all pairs of models are the lines of `line`, one by one."""

import jax
import numpy as np
import pytest

from pfljax import landscape
from pfljax.conformance import toy
from pfljax.core.types import ClientData

CLIENTS = len(toy.SIZES)
POINTS = 5


@pytest.fixture(scope="module")
def clients():
    task = toy.classifier()
    models = jax.vmap(task.init)(jax.random.split(jax.random.key(1), CLIENTS))
    return task, models, toy.ragged()[0]


def model(models, k):
    return jax.tree.map(lambda leaf: leaf[k], models)


def two(data, i, j):
    """The examples of clients i and j as those of one."""
    ids = np.asarray([i, j])
    return landscape.pooled(ClientData(data.examples, data.offset[ids], data.size[ids]))


def test_lines_on_pooled_examples(clients):
    task, models, data = clients
    everybody = landscape.pooled(data)
    found = landscape.pairs(task, models, everybody, points=POINTS)
    for i in range(CLIENTS):
        first = model(models, i)
        row = landscape.line(task, first, models, everybody, t=found.line.t)
        beside = landscape.between(task, first, models, everybody)
        for name in ("accuracy", "loss", "ece"):
            values = found.line.metrics[name][i]
            np.testing.assert_allclose(values, row.metrics[name], atol=2e-5)
        np.testing.assert_allclose(found.cosine[i], beside.cosine, rtol=1e-5)
        np.testing.assert_allclose(found.distance[i], beside.distance, atol=1e-6)
    walls = landscape.barrier(found.line, "accuracy")
    np.testing.assert_allclose(walls, walls.T, atol=1e-6)
    assert np.abs(np.diag(walls)).max() < 1e-6
    assert walls.shape == (CLIENTS, CLIENTS)
    assert walls.max() > 0.01


@pytest.mark.slow
def test_lines_on_the_two_clients_own_examples(clients):
    task, models, data = clients
    found = landscape.pairs(task, models, data)
    assert found.line.metrics["loss"].shape == (CLIENTS, CLIENTS, 11)
    for i, j in ((6, 3), (2, 2)):
        ends, examples = (model(models, i), model(models, j)), two(data, i, j)
        alone = landscape.line(task, *ends, examples, t=found.line.t)
        for name in ("accuracy", "loss", "mce"):
            values = found.line.metrics[name][i, j]
            np.testing.assert_allclose(values, alone.metrics[name], atol=2e-5)


@pytest.mark.slow
def test_chosen_pairs_are_those_of_the_square(clients):
    task, models, data = clients
    square = landscape.pairs(task, models, data, points=POINTS)
    i, j = np.array([6, 2, 7]), np.array([3, 5, 0])
    chosen = landscape.pair_lines(task, models, data, i, j, t=square.line.t)
    for name, values in chosen.line.metrics.items():
        np.testing.assert_allclose(values, square.line.metrics[name][i, j], atol=1e-5)
    np.testing.assert_allclose(chosen.distance, square.distance[i, j], rtol=1e-6)


def test_what_is_not_stacked_is_refused(clients):
    task, models, data = clients
    with pytest.raises(ValueError, match="models is one model, expected K stacked"):
        landscape.pairs(task, model(models, 0), data)
    fewer = jax.tree.map(lambda leaf: leaf[:3], models)
    with pytest.raises(ValueError, match="clients differ: models 3, data 8"):
        landscape.pairs(task, fewer, data)
    with pytest.raises(ValueError, match="points is 1, expected a whole number, 3"):
        landscape.pairs(task, models, data, points=1)
    with pytest.raises(ValueError, match="batch_size is 0"):
        landscape.pairs(task, models, data, batch_size=0)
