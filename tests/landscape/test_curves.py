"""Trained curves and simplexes: their weights, steps and losses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import landscape
from pfljax.conformance import toy
from pfljax.core.keys import derive
from pfljax.core.tree import square_cosine
from pfljax.core.types import Batch, Local
from pfljax.landscape import curve_training, curves

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
    points = curve_training.train_curve(
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
    found = landscape.mixtures(task, points, weights, data)
    np.testing.assert_allclose(found["loss"], -picked.mean(1), rtol=1e-4)
    return found["loss"]


@pytest.mark.slow
def test_a_trained_curve_avoids_the_barrier_of_the_line():
    task, data = toy.classifier(), _rings()
    train = Local(0.3, batch_size=20, epochs=60)
    a, b = (_trained(task, data, train, seed) for seed in (1, 2))
    along = curves.curve_weights("bezier", 3, T)
    line = jax.tree.map(lambda x, y: jnp.stack([x, (x + y) / 2, y]), a, b)
    curve = curve_training.train_curve(task, a, b, data, train, _key(5))
    straight, curved = (_loss(task, data, p, along) for p in (line, curve))
    np.testing.assert_allclose(straight[[0, -1]], curved[[0, -1]], rtol=1e-5)
    barriers = [(v - (1 - T) * v[0] - T * v[-1]).max() for v in (straight, curved)]
    assert barriers[0] > 0.08
    assert barriers[1] < barriers[0] / 2
    assert curved.mean() < straight.mean() - 0.03


def _trained(task, data, local, seed):
    """A model, as a simplex of two equal ones without a pull apart."""
    first = task.init(_key(seed))
    twice = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), first)
    found = curve_training.train_simplex(task, twice, data, local, _key(seed), beta=0.0)
    return curves.mix(found, jnp.array([0.5, 0.5]))


@pytest.mark.slow
def test_a_simplex_has_a_low_loss_everywhere_and_points_apart():
    task, data, train = toy.classifier(), _rings(), Local(0.3, 20, epochs=60)
    first = jax.vmap(task.init)(jax.random.split(_key(7), 3))
    inside = np.random.default_rng(0).dirichlet(np.ones(3), 20).astype(np.float32)
    together, apart = (
        curve_training.train_simplex(task, first, data, train, _key(), beta=beta)
        for beta in (0.0, 3.0)
    )
    before = _loss(task, data, first, inside).mean()
    for found in (together, apart):
        assert _loss(task, data, found, inside).max() < 0.8 * before

    def cosine(points):
        pair = (jax.tree.map(lambda leaf, i=i: leaf[i], points) for i in (0, 1))
        return float(square_cosine(*pair))

    assert cosine(apart) < 0.5 * cosine(together)


def test_clients_have_the_curves_that_they_have_alone():
    task, (train, _) = toy.classifier(), toy.ragged()
    local, clients = Local(0.1, 4), len(toy.SIZES)
    a, b = (jax.vmap(task.init)(jax.random.split(_key(s), clients)) for s in (0, 1))
    found = curve_training.train_curve(task, a, b, train, local, _key(2), bends=2)
    evaluated = landscape.curve(task, found, train, t=T)
    for k in (0, 5):
        own = (jax.tree.map(lambda leaf, k=k: leaf[k], end) for end in (a, b))
        key = jax.random.fold_in(_key(2), k)
        alone = curve_training.train_curve(
            task, *own, toy.one(train, k), local, key, bends=2
        )
        toy.assert_close(jax.tree.map(lambda leaf, k=k: leaf[k], found), alone)
        one = landscape.curve(task, alone, toy.one(train, k), t=T)
        np.testing.assert_allclose(
            evaluated.metrics["loss"][k], one.metrics["loss"], rtol=1e-5
        )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"bends": 0}, "bends is 0; expected at least 1"),
        ({"kind": "arc"}, "known: bez"),
    ],
)
def test_what_is_no_curve_is_refused(options, expected):
    task, data = toy.quadratic(), toy.one(toy.quadratic_clients(), 0)
    model = toy.unflat([0.0, 0, 0])
    with pytest.raises(ValueError, match=expected):
        curve_training.train_curve(
            task, model, model, data, toy.full_batch(), _key(), **options
        )


def test_one_point_is_no_simplex():
    task, data = toy.quadratic(), toy.one(toy.quadratic_clients(), 0)
    with pytest.raises(ValueError, match="expected at least two"):
        curve_training.train_simplex(
            task, toy.unflat([[0.0, 0, 0]]), data, toy.full_batch(), _key()
        )


@pytest.mark.parametrize("kind", curves.KINDS)
@pytest.mark.parametrize("t", [(-0.1, 0.5), (0.5, 1.1)])
def test_there_is_no_curve_beyond_its_ends(kind, t):
    task, data = toy.quadratic(), toy.one(toy.quadratic_clients(), 0)
    with pytest.raises(ValueError, match=r"t is .* expected positions from 0 to 1"):
        landscape.curve(task, toy.unflat(np.eye(3)), data, kind=kind, t=t)


@pytest.mark.parametrize("number", [2, 4])
def test_mixtures_have_a_weight_for_each_point(number):
    task, data = toy.quadratic(), toy.one(toy.quadratic_clients(), 0)
    expected = rf"weights have shape \(5, {number}\), expected \(P, 3\), .* point 2"
    with pytest.raises(ValueError, match=expected):
        curves.mixtures(task, toy.unflat(np.eye(3)), np.ones((5, number)), data)


def test_points_of_another_model_are_refused():
    task, data = toy.classifier(), toy.one(toy.ragged()[0], 0)
    with pytest.raises(ValueError, match=r"expected .* behind one axis"):
        landscape.curve(task, task.init(_key()), data)


def test_one_model_and_the_examples_of_many_clients_are_refused():
    task, (data, _), local = toy.classifier(), toy.ragged(), toy.full_batch()
    model = task.init(_key())
    with pytest.raises(ValueError, match="some of a, b and data are of many clients"):
        curve_training.train_curve(task, model, model, data, local, _key())
    pair = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), model)
    with pytest.raises(ValueError, match=r"points are of one and data of \(8,\)"):
        curve_training.train_simplex(task, pair, data, local, _key())


@pytest.mark.parametrize("kind", ["curve", "simplex"])
def test_a_second_training_traces_nothing(kind):
    task, data, local = toy.quadratic(), toy.one(toy.noisy_clients(), 0), Local(0.1, 2)
    calls, models = [], [toy.unflat([k, 1.0, -k]) for k in range(3)]
    own = task._replace(loss=lambda *given: calls.append(1) or task.loss(*given))
    traced = []
    for a, b in (models[:2], models[1:]):
        if kind == "curve":
            curve_training.train_curve(own, a, b, data, local, _key())
        else:
            pair = jax.tree.map(lambda *leaves: jnp.stack(leaves), a, b)
            curve_training.train_simplex(own, pair, data, local, _key())
        traced.append(len(calls))
    assert traced[0] > 0
    assert traced[1] == traced[0]
