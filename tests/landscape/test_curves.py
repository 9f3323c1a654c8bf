"""Trained curves: their weights, steps and losses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import landscape
from pfljax.conformance import toy
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.minibatches import take_batch
from pfljax.core.types import Batch, Local
from pfljax.landscape import curves

T = np.linspace(0, 1, 7)


def test_a_bezier_of_one_bend_is_its_formula():
    found = curves.curve_weights("bezier", 3, T)
    expected = np.stack([(1 - T) ** 2, 2 * T * (1 - T), T**2], 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_chain_goes_through_its_points():
    found = curves.curve_weights("chain", 4, T)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(found[::2], np.eye(4), atol=1e-6)
    np.testing.assert_allclose(found[1], [0.5, 0.5, 0, 0], atol=1e-6)


@pytest.mark.parametrize("kind", curves.KINDS)
def test_a_step_follows_the_gradient_at_the_place_that_was_drawn(kind):
    """On quadratics: the bend moves by its weight times the gradient there."""
    task, data, key = toy.quadratic(), toy.one(toy.quadratic_clients(), 1), _key(3)
    ends = np.array([[1.0, 2, 3], [-1, 0.5, 0]])
    points = landscape.train_curve(
        task, *map(toy.unflat, ends), data, toy.full_batch(1), key, kind=kind
    )
    noise = jax.random.fold_in(derive(key, "noise"), 0)
    t = jax.random.uniform(derive(noise, "place"))
    weights = np.asarray(curves.curve_weights(kind, 3, t))
    middle = ends.mean(0)
    model = weights @ np.stack([ends[0], middle, ends[1]])
    bend = middle - toy.RATE * weights[1] * toy.gradient(1, model)
    found = toy.flat(points)
    np.testing.assert_allclose(found[[0, 2]], ends, rtol=1e-6)
    np.testing.assert_allclose(found[1], bend, rtol=1e-5)
    assert not np.allclose(bend, middle)


def _key(seed=0):
    return jax.random.key(seed)


def _rings():
    """One client whose examples a linear model cannot tell apart."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    data, _ = toy.deal(x, np.linalg.norm(x, axis=1) > 1.5, [200])
    return toy.one(data, 0)


def _loss(task, data, points, weights):
    models = jax.vmap(curves.mix, (None, 0))(points, weights)
    logits = jax.vmap(task.predict, (0, None))(models, Batch.full(data.examples.x))
    picked = jax.nn.log_softmax(logits)[:, jnp.arange(200), data.examples.y]
    return -np.asarray(picked).mean(1)


@pytest.mark.slow
def test_a_trained_curve_avoids_the_barrier_of_the_line():
    task, data = toy.classifier(), _rings()
    train = Local(0.3, batch_size=20, epochs=60)
    a, b = (_trained(task, data, seed) for seed in (1, 2))
    along = curves.curve_weights("bezier", 3, T)
    line = jax.tree.map(lambda x, y: jnp.stack([x, (x + y) / 2, y]), a, b)
    curve = landscape.train_curve(task, a, b, data, train, _key(5))
    straight, curved = (_loss(task, data, p, along) for p in (line, curve))
    found = landscape.curve(task, curve, data, t=T).metrics["loss"]
    np.testing.assert_allclose(found, curved, rtol=1e-4)
    np.testing.assert_allclose(straight[[0, -1]], curved[[0, -1]], rtol=1e-5)
    barriers = [(v - (1 - T) * v[0] - T * v[-1]).max() for v in (straight, curved)]
    assert barriers[0] > 0.08
    assert barriers[1] < barriers[0] / 2
    assert curved.mean() < straight.mean() - 0.03


def _trained(task, data, seed):
    batch = take_batch(data, jnp.int32(0), len(data.examples.y))
    step = jax.jit(lambda w: tree.axpy(-0.5, jax.grad(task.loss)(w, batch, None), w))
    w = task.init(_key(seed))
    for _ in range(1000):
        w = step(w)
    return w


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"bends": 0}, "bends is 0, expected a whole number, 1 or more"),
        ({"kind": "arc"}, "known: bez"),
    ],
)
def test_what_is_no_curve_is_refused(options, expected):
    task, data = toy.quadratic(), toy.one(toy.quadratic_clients(), 0)
    model = toy.unflat([0.0, 0, 0])
    with pytest.raises(ValueError, match=expected):
        landscape.train_curve(
            task, model, model, data, toy.full_batch(), _key(), **options
        )


@pytest.mark.parametrize("kind", curves.KINDS)
@pytest.mark.parametrize("t", [(-0.1, 0.5), (0.5, 1.1)])
def test_there_is_no_curve_beyond_its_ends(kind, t):
    task, data = toy.quadratic(), toy.one(toy.quadratic_clients(), 0)
    with pytest.raises(ValueError, match=r"t is .* expected positions from 0 to 1"):
        landscape.curve(task, toy.unflat(np.eye(3)), data, kind=kind, t=t)


def test_the_models_and_examples_of_many_clients_are_refused():
    task, (data, _), local = toy.classifier(), toy.ragged(), toy.full_batch()
    model = task.init(_key())
    with pytest.raises(ValueError, match="a, b or data are of many clients"):
        landscape.train_curve(task, model, model, data, local, _key())


def test_a_second_training_traces_nothing():
    task, data, local = toy.quadratic(), toy.one(toy.noisy_clients(), 0), Local(0.1, 2)
    calls, models = [], [toy.unflat([k, 1.0, -k]) for k in range(3)]
    own = task._replace(loss=lambda *given: calls.append(1) or task.loss(*given))
    traced = []
    for a, b in (models[:2], models[1:]):
        landscape.train_curve(own, a, b, data, local, _key())
        traced.append(len(calls))
    assert traced[0] > 0
    assert traced[1] == traced[0]
