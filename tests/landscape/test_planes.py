"""Planes of the loss, against NumPy on quadratic clients and logistic models."""

import jax
import numpy as np
import pytest

from pfljax import landscape, models
from pfljax.conformance import toy
from pfljax.core import tree
from pfljax.core.types import Batch
from pfljax.landscape.planes import pooled


def test_a_plane_is_the_loss_of_each_of_its_models():
    task, (_, test) = toy.classifier(), toy.ragged()
    center, u, v = (task.init(jax.random.key(seed)) for seed in range(3))
    alpha, beta = [-1.0, 0.0, 0.5], [0.0, 2.0]
    frame = landscape.around(center, u, v)
    plane = landscape.plane(task, frame, pooled(test), alpha=alpha, beta=beta)
    assert plane.marks == {"center": (0, 0)}
    spans = zip(np.asarray(test.offset), np.asarray(test.size), strict=True)
    index = np.concatenate([offset + np.arange(size) for offset, size in spans])
    x, y = test.examples.x[index], np.asarray(test.examples.y)[index]
    for i, a in enumerate(alpha):
        for j, b in enumerate(beta):
            at = jax.tree.map(lambda c, d, e, a=a, b=b: c + a * d + b * e, center, u, v)
            logits = np.asarray(task.predict(at, Batch.full(x)))
            log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            loss = -log_p[np.arange(len(y)), y].mean()
            assert plane.metrics["loss"][i, j] == pytest.approx(loss, rel=1e-5)
            hits = (logits.argmax(1) == y).mean()
            assert plane.metrics["accuracy"][i, j] == pytest.approx(hits)


def test_directions_have_the_norms_of_the_filters():
    network = models.model("gn_cnn", 10, channels=(4, 8))
    params = jax.jit(models.task(network, (8, 8, 1)).init)(jax.random.key(0))
    drawn = landscape.random_direction(jax.random.key(1), params)
    for own, its in zip(jax.tree.leaves(params), jax.tree.leaves(drawn), strict=True):
        if own.ndim < 2:
            assert not its.any()
            continue
        norms = [np.linalg.norm(a.reshape(-1, a.shape[-1]), axis=0) for a in (own, its)]
        np.testing.assert_allclose(*norms, rtol=1e-4)
        assert abs(np.vdot(own, its)) < 0.5 * np.vdot(own, own)
    given = landscape.random_direction(jax.random.key(1), params, network)
    toy.assert_same(given, drawn)  # all of its layers are Flax's own
    other = landscape.random_direction(jax.random.key(2), params)
    assert not np.allclose(drawn["head"]["kernel"], other["head"]["kernel"])


def test_pooled_examples_are_those_of_all_clients_in_order():
    _, test = toy.ragged()
    found = pooled(test)
    assert found.size == test.size.sum()
    for k, start in enumerate(np.cumsum(test.size) - test.size):
        own = test.examples.x[test.offset[k] : test.offset[k] + test.size[k]]
        x = found.examples.x[start : start + test.size[k]]
        np.testing.assert_array_equal(x, own)


def test_examples_that_all_clients_share_are_pooled_once():
    data = toy.ragged()[1]
    same = data._replace(offset=np.full(5, 7), size=np.full(5, 4))
    found = pooled(same)
    assert found.size == 4
    np.testing.assert_array_equal(found.examples.x, data.examples.x[7:11])
    assert pooled(same._replace(size=np.asarray([4, 4, 4, 4, 3]))).size == 19


def test_a_plane_goes_through_three_models():
    task, (_, test) = toy.classifier(), toy.ragged()
    models = {name: task.init(jax.random.key(k)) for k, name in enumerate("abc")}
    frame = landscape.through(**models)
    assert float(tree.dot(frame.u, frame.v)) == pytest.approx(0, abs=1e-5)
    assert frame.marks["a"] == (0, 0)
    assert frame.marks["c"][1] == 0
    for one, other in ("ab", "bc", "ca"):  # true lengths
        apart = tree.square_norm(tree.sub(models[one], models[other])) ** 0.5
        drawn = np.subtract(frame.marks[one], frame.marks[other])
        assert np.hypot(*drawn) == pytest.approx(float(apart), rel=1e-5)
    for name, (x, y) in frame.marks.items():
        at = tree.axpy(y, frame.v, tree.axpy(x, frame.u, frame.center))
        toy.assert_close(at, models[name])
        one = landscape.plane(task, frame, pooled(test), alpha=[x], beta=[y])
        end = landscape.line(task, models[name], models["a"], pooled(test), t=(0, 1))
        assert one.metrics["loss"][0, 0] == pytest.approx(
            end.metrics["loss"][0], rel=1e-5
        )
    named = landscape.through(**models, names=("server", "client 1", "client 0"))
    assert list(named.marks) == ["server", "client 1", "client 0"]
    assert list(named.marks.values()) == list(frame.marks.values())
    a, b, _ = models.values()
    near = tree.axpy(1e-3, b, a)
    for three in (a, b, b), (a, b, a), (a, a, b), (a, tree.lerp(a, near, 0.3), near):
        with pytest.raises(ValueError, match="models are equal, lie on one line"):
            landscape.through(*three)


def test_principal_directions_show_a_flat_trajectory_as_it_is():
    task, rng = toy.classifier(), np.random.default_rng(0)
    last, d, e = (task.init(jax.random.key(k)) for k in range(3))
    along = [*rng.normal(size=(5, 2)), np.zeros(2)]
    models = [tree.axpy(a, d, tree.axpy(b, e, last)) for a, b in along]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *models)
    frame, shares = landscape.principal(stacked, [f"round {k}" for k in range(6)])
    assert shares.sum() == pytest.approx(1)
    assert shares[0] > shares[1]
    assert float(tree.dot(frame.u, frame.v)) == pytest.approx(0, abs=1e-4)
    first, last = (np.array(frame.marks[f"round {k}"]) for k in (0, 5))
    apart = tree.square_norm(tree.sub(models[0], models[-1])) ** 0.5
    assert np.linalg.norm(first - last) == pytest.approx(float(apart), rel=1e-4)
    for (x, y), model in zip(frame.marks.values(), models, strict=True):
        at = tree.axpy(y, frame.v, tree.axpy(x, frame.u, frame.center))
        toy.assert_close(at, model, 1e-4)
    apart = jax.tree.map(lambda leaf: leaf[:2], stacked)
    with pytest.raises(ValueError, match="2 models and 2 names; expected 3"):
        landscape.principal(apart, ["a", "b"])


def test_what_a_projection_loses_is_said():
    """Three models of a bent way, and a fourth away from their plane."""
    task, data = toy.classifier(), pooled(toy.ragged()[1])
    a, b, c, d = (task.init(jax.random.key(k)) for k in range(4))
    frame = landscape.through(a, b, c)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), a, b, c, d)
    found = landscape.project(frame, stacked)
    losses = landscape.evaluate_points(task, frame, found.positions, data)["loss"]
    flat = [
        np.concatenate([np.ravel(w) for w in jax.tree.leaves(m)]) for m in (a, b, c, d)
    ]
    flat = np.asarray(flat, np.float64)
    basis = np.stack([flat[1] - flat[0], flat[2] - flat[0]], 1)
    weights, (rest,), *_ = np.linalg.lstsq(basis, flat[3] - flat[0])
    np.testing.assert_allclose(found.distance, [0, 0, 0, rest**0.5], atol=1e-5)
    np.testing.assert_allclose(found.positions[:3], [*frame.marks.values()], atol=1e-5)
    own = [
        landscape.line(task, model, a, data, t=(0, 1)).metrics["loss"][0]
        for model in (a, b, c, d)
    ]
    np.testing.assert_allclose(losses[:3], own[:3], rtol=1e-5)
    seen = jax.tree.map(
        lambda p, q, r: p + weights[0] * (q - p) + weights[1] * (r - p), a, b, c
    )
    loss = landscape.line(task, seen, a, data, t=(0, 1)).metrics["loss"][0]
    assert losses[3] == pytest.approx(loss, rel=1e-4)
    assert abs(losses[3] - own[3]) > 0.01
    # The axes are no longer than they must be, and need not be of norm 1.
    slanted = landscape.around(a, tree.sub(b, a), tree.sub(c, a))
    other = landscape.project(slanted, stacked)
    np.testing.assert_allclose(other.positions[3], weights, rtol=1e-4)
    np.testing.assert_allclose(other.distance, found.distance, atol=1e-5)


def test_running_statistics_are_no_part_of_a_trajectory():
    rng = np.random.default_rng(0)
    norm = {"scale": rng.normal(size=(5, 2)), "batch_stats": rng.normal(size=(5, 2))}
    frame, shares = landscape.principal({"norm": norm}, "abcde")
    alone, own = landscape.principal({"norm": {"scale": norm["scale"]}}, "abcde")
    np.testing.assert_allclose(shares, own)
    assert frame.marks == alone.marks
    assert frame.u["norm"]["batch_stats"].any()  # but they move with the parameters


def test_a_window_has_all_marks_and_equal_sides():
    frame = landscape.Frame({}, {}, {}, {"a": (0.0, 0.0), "b": (4.0, 1.0)})
    alpha, beta = landscape.cover(frame, 5, margin=0.25)
    np.testing.assert_allclose(alpha, [-1, 0.5, 2, 3.5, 5])
    np.testing.assert_allclose(beta, alpha - 1.5)


def test_a_direction_has_the_norms_of_the_outputs_of_linear_layers():
    network = models.model("logistic", 3)
    params = models.task(network, (5,)).init(jax.random.key(0))
    drawn = landscape.random_direction(jax.random.key(1), params, network)
    norms = [np.linalg.norm(p["head"]["kernel"], axis=1) for p in (params, drawn)]
    np.testing.assert_allclose(*norms, rtol=1e-5)
    other = toy.classifier().init(jax.random.key(0))
    with pytest.raises(ValueError, match="the network whose parameters they are"):
        landscape.random_direction(jax.random.key(1), other, models.model("twocnn", 3))


def test_what_is_no_plane_is_refused():
    task, data = toy.classifier(), pooled(toy.ragged()[1])
    one = task.init(jax.random.key(0))
    frame, axes = landscape.around(one, one, one), {"alpha": [0.0], "beta": [0.0]}
    for wrong in (0.5, [], [[0.0, 1.0]]):
        with pytest.raises(ValueError, match=r"alpha is .* expected ascending numbers"):
            landscape.plane(task, frame, data, **axes | {"alpha": wrong})
    with pytest.raises(ValueError, match="batch_size is 0"):
        landscape.plane(task, frame, data, **axes, batch_size=0)
