"""Planes of the loss, against NumPy on quadratic clients and logistic models."""

import jax
import numpy as np
import pytest

import toy
from pfljax import landscape, models
from pfljax.landscape.planes import pooled


def test_a_plane_is_the_loss_of_each_of_its_models():
    task, (_, test) = toy.classifier(), toy.ragged()
    center, u, v = (task.init(jax.random.key(seed)) for seed in range(3))
    alpha, beta = [-1.0, 0.0, 0.5], [0.0, 2.0]
    plane = landscape.plane(task, center, u, v, test, alpha=alpha, beta=beta)
    spans = zip(np.asarray(test.offset), np.asarray(test.size), strict=True)
    rows = np.concatenate([offset + np.arange(size) for offset, size in spans])
    x, y = test.examples.x[rows], np.asarray(test.examples.y)[rows]
    for i, a in enumerate(alpha):
        for j, b in enumerate(beta):
            at = jax.tree.map(lambda c, d, e, a=a, b=b: c + a * d + b * e, center, u, v)
            logits = np.asarray(task.predict(at, x))
            log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            loss = -log_p[np.arange(len(y)), y].mean()
            assert plane.metrics["loss"][i, j] == pytest.approx(loss, rel=1e-5)
            hits = (logits.argmax(1) == y).mean()
            assert plane.metrics["accuracy"][i, j] == pytest.approx(hits)


def test_directions_have_the_norms_of_the_filters():
    task = models.task(models.model("gn_cnn", 10), (12, 12, 1))
    params = task.init(jax.random.key(0))
    drawn = landscape.random_direction(jax.random.key(1), params)
    for own, its in zip(jax.tree.leaves(params), jax.tree.leaves(drawn), strict=True):
        if own.ndim < 2:
            assert not its.any()
            continue
        norms = [np.linalg.norm(a.reshape(-1, a.shape[-1]), axis=0) for a in (own, its)]
        np.testing.assert_allclose(*norms, rtol=1e-4)
        assert abs(np.vdot(own, its)) < 0.5 * np.vdot(own, own)
    other = landscape.random_direction(jax.random.key(2), params)
    assert not np.allclose(drawn["head"]["kernel"], other["head"]["kernel"])


def test_pooled_rows_are_those_of_all_clients_in_order():
    _, test = toy.ragged()
    found = pooled(test)
    assert found.size == test.size.sum()
    for k, start in enumerate(np.cumsum(test.size) - test.size):
        own = test.examples.x[test.offset[k] : test.offset[k] + test.size[k]]
        rows = found.examples.x[start : start + test.size[k]]
        np.testing.assert_array_equal(rows, own)


def test_the_figure_clips_what_diverged_and_shares_one_scale():
    axis = np.linspace(-1, 1, 5)
    bowl = axis[:, None] ** 2 + axis[None] ** 2 + 0.1
    far = np.where(bowl > 1, np.nan, 3 * bowl)
    planes = {
        name: landscape.Plane(axis, axis, {"loss": values})
        for name, values in (("FedAvg", bowl), ("other", far))
    }
    figure = landscape.draw_planes(planes)
    panels = figure.axes[:2]
    assert [axes.get_title() for axes in panels] == ["FedAvg", "other"]
    fills = [axes.collections[0] for axes in panels]
    assert fills[0].get_clim() == fills[1].get_clim()
    assert fills[0].get_clim()[0] == pytest.approx(0.1)
    assert figure.axes[2].get_ylabel() == "loss"
