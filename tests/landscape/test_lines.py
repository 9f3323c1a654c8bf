"""Lines between models, against NumPy and by what must hold of any line."""

import jax
import numpy as np
import pytest

from pfljax import landscape, models
from pfljax.conformance import toy
from pfljax.core.types import Batch
from pfljax.evaluation.metrics import METRICS
from pfljax.landscape import Line
from pfljax.landscape import stacked as stacked_models

T = (0.0, 0.3, 0.5, 1.0)
CLIENTS = len(toy.SIZES)
SOME = (0, 3, 6)  # clients that NumPy evaluates


def stacked(task, seed):
    return jax.vmap(task.init)(jax.random.split(jax.random.key(seed), CLIENTS))


def one(models, k):
    return jax.tree.map(lambda leaf: leaf[k], models)


def examples(data):
    """x, y of one client."""
    mine = slice(int(data.offset), int(data.offset) + int(data.size))
    return data.examples.x[mine], np.asarray(data.examples.y)[mine]


def probabilities(task, params, x):
    logits = np.asarray(task.predict(params, Batch.full(x)), np.float64)
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def score(p, y):
    """Accuracy and loss of probabilities."""
    return (p.argmax(1) == y).mean(), -np.log(p[np.arange(len(y)), y]).mean()


def mirrored(line):
    return Line(line.t, {m: values[..., ::-1] for m, values in line.metrics.items()})


def assert_same_metrics(one, other, atol=1e-6):
    assert set(one.metrics) == set(other.metrics) == set(METRICS)
    for name in METRICS:
        np.testing.assert_allclose(one.metrics[name], other.metrics[name], atol=atol)


@pytest.fixture(scope="module")
def clients():
    """(task, a, b, data) of 8 clients with a line each."""
    task = toy.classifier()
    return task, stacked(task, 1), stacked(task, 2), toy.ragged()[0]


@pytest.fixture(scope="module")
def found(clients):
    return landscape.line(*clients, t=T)


def test_each_point_is_its_model_on_the_clients_own_examples(clients, found):
    task, a, b, data = clients
    assert found.metrics["loss"].shape == (CLIENTS, len(T))
    for k in SOME:
        x, y = examples(toy.one(data, k))
        for i, t in enumerate(T):
            ends = one(a, k), one(b, k)
            at = jax.tree.map(lambda p, q, t=t: (1 - t) * p + t * q, *ends)
            accuracy, loss = score(probabilities(task, at, x), y)
            assert found.metrics["accuracy"][k, i] == pytest.approx(accuracy)
            assert found.metrics["loss"][k, i] == pytest.approx(loss, rel=1e-4)
    assert np.ptp(found.metrics["loss"], axis=1).min() > 0


def test_stacked_lines_are_those_of_one_by_one(clients, found):
    task, a, b, data = clients
    for k in (0, 5):
        alone = landscape.line(task, one(a, k), one(b, k), toy.one(data, k), t=T)
        assert_same_metrics(
            alone, Line(found.t, {m: v[k] for m, v in found.metrics.items()})
        )


@pytest.mark.parametrize("width", [3, pytest.param(CLIENTS, marks=pytest.mark.slow)])
def test_the_number_of_models_at_a_time_changes_nothing(
    clients, found, width, monkeypatch
):
    monkeypatch.setattr(stacked_models, "choose_width", lambda *_: width)
    assert_same_metrics(landscape.line(*clients, t=T), found)


@pytest.mark.slow
def test_what_is_not_stacked_is_shared(clients):
    task, a, b, data = clients
    everybody = landscape.pooled(data)
    center = one(a, 0)
    spread = jax.tree.map(lambda leaf: np.stack([leaf] * CLIENTS), center)
    shared = landscape.line(task, center, b, data, t=T)
    assert_same_metrics(shared, landscape.line(task, spread, b, data, t=T))
    pooled = landscape.line(task, center, b, everybody, t=T)
    alone = landscape.line(task, center, one(b, 4), everybody, t=T)
    assert_same_metrics(
        alone, Line(pooled.t, {m: v[4] for m, v in pooled.metrics.items()})
    )


def test_swapped_ends_mirror_the_line(clients, found):
    task, a, b, data = clients
    t = tuple(1 - place for place in T[::-1])
    back = landscape.line(task, b, a, data, t=t)
    assert_same_metrics(mirrored(back), found, atol=1e-5)
    assert np.abs(back.metrics["loss"] - found.metrics["loss"]).max() > 1e-3


@pytest.mark.slow
def test_equal_ends_have_no_barrier(clients):
    task, a, _, data = clients
    flat = landscape.line(task, a, a, data, t=T)
    for name in ("loss", "accuracy"):
        assert np.ptp(flat.metrics[name], axis=1).max() < 1e-6
        assert np.abs(landscape.barrier(flat, name)).max() < 1e-6
        np.testing.assert_allclose(landscape.flat_range(flat, name, 1e-5), 1)
    beside = landscape.between(task, a, a, data)
    np.testing.assert_allclose(beside.cosine, 1, rtol=1e-6)
    assert not beside.distance.any()
    assert not beside.total_variation.any()


def test_a_convex_loss_has_no_barrier_and_a_bent_one_has(clients, found):
    _, _, _, data = clients
    task = models.task(models.model("logistic", 3), (3,))
    ends = [jax.tree.map(lambda w: 5 * w, stacked(task, seed)) for seed in (1, 2)]
    convex = landscape.line(task, *ends, data, t=T)
    assert landscape.barrier(convex, "loss").max() < 1e-6
    loss = convex.metrics["loss"]
    assert (loss[:, 2] < loss[:, [0, -1]].mean(1) - 1e-3).all()
    assert landscape.barrier(found, "accuracy").max() > 0.01


def test_two_ends_are_compared_on_their_examples(clients):
    task, a, b, data = clients
    beside = landscape.between(task, a, b, data)
    for k in SOME:
        ends, (x, y) = (one(a, k), one(b, k)), examples(toy.one(data, k))
        p, q = (probabilities(task, end, x) for end in ends)
        assert beside.total_variation[k] == pytest.approx(
            (np.abs(p - q).sum(1) / 2).mean(), rel=1e-4
        )
        both = p * q / (p * q).sum(1, keepdims=True)  # logits add
        accuracy, loss = score(both, y)
        assert beside.ensemble["accuracy"][k] == pytest.approx(accuracy)
        assert beside.ensemble["loss"][k] == pytest.approx(loss, rel=1e-4)
        flat = [np.concatenate([np.ravel(w) for w in jax.tree.leaves(e)]) for e in ends]
        norms = [np.linalg.norm(w) for w in flat]
        assert beside.distance[k] == pytest.approx(np.linalg.norm(flat[0] - flat[1]))
        assert beside.cosine[k] == pytest.approx(np.dot(*flat) / np.prod(norms))


def test_a_client_without_examples_is_nan(clients):
    task, a, b, data = clients
    data = data._replace(size=np.asarray(data.size) * (np.arange(CLIENTS) != 2))
    empty = np.arange(CLIENTS) == 2
    found = landscape.line(task, a, b, data, t=T)
    np.testing.assert_array_equal(np.isnan(found.metrics["loss"]).all(1), empty)
    beside = landscape.between(task, a, b, data)
    np.testing.assert_array_equal(np.isnan(beside.total_variation), empty)
    for figure in (landscape.barrier, landscape.flat_range):
        np.testing.assert_array_equal(np.isnan(figure(found)), empty)


def test_figures_of_a_line_by_hand():
    t = np.asarray([-0.5, 0.0, 0.25, 0.5, 1.0, 1.5], np.float32)
    loss = np.asarray([9.0, 1.0, 4.0, 3.0, 2.0, 9.0])  # beyond the ends nothing counts
    accuracy = np.asarray([0.0, 0.9, 0.5, 0.6, 0.8, 0.0])
    line = Line(t, {"loss": np.stack([loss, 2 * loss]), "accuracy": accuracy})
    np.testing.assert_allclose(landscape.barrier(line, "loss"), [2.75, 5.5])
    assert landscape.barrier(line, "accuracy") == pytest.approx(0.9 - 0.025 - 0.5)
    np.testing.assert_allclose(landscape.midpoint(line, "loss"), [3, 6])
    # accuracy >= 0.8 from 0 to 1/16, and at 1 alone
    assert landscape.flat_range(line, "accuracy", 0.1) == pytest.approx(1 / 16)
    # accuracy >= 0.7: 1/8 of the first part, half of the last
    assert landscape.flat_range(line, "accuracy", 0.2) == pytest.approx(1 / 8 + 1 / 4)
    assert landscape.flat_range(line, "accuracy", 1.0) == pytest.approx(1)
    assert landscape.flat_range(line, "loss", 0.0)[0] == 0


@pytest.mark.slow
def test_a_second_call_with_other_models_traces_nothing(clients):
    task, a, b, data = clients
    traced = []

    def counted(of):
        def call(*given):
            traced.append(of)
            return getattr(task, of)(*given)

        return call

    own = task._replace(init=counted("init"), predict=counted("predict"))
    center, u, v = (one(a, k) for k in range(3))

    def everything(a, b, center):
        landscape.line(own, a, b, data, t=T)
        landscape.between(own, a, b, data)
        landscape.pairs(own, a, data)
        axes = {"alpha": [0.0, 1.0], "beta": [0.0]}
        landscape.plane(own, landscape.around(center, u, v), data, **axes)

    everything(a, b, center)
    assert {"init", "predict"} == set(traced)
    traced.clear()
    everything(b, a, v)
    assert traced == []


def test_the_wrong_shapes_are_refused(clients):
    task, a, b, data = clients
    fewer = jax.tree.map(lambda leaf: leaf[:3], b)
    message = "numbers of clients differ: a 8, b 3, data 8; stack all over the same"
    with pytest.raises(ValueError, match=message):
        landscape.line(task, a, fewer, data)
    ragged = jax.tree.map(lambda leaf: leaf, b)
    ragged["head"]["bias"] = ragged["head"]["bias"][0]
    expected = (
        r"b are not parameters of this task's model.*head.*bias.* is float32\[3\]"
    )
    with pytest.raises(ValueError, match=expected):
        landscape.line(task, a, ragged, data)
    wider = models.task(models.mlp(3, hidden=(5,)), (3,))
    message = r"a are not parameters of this task's model.*\[5\], expected float32\[4\]"
    with pytest.raises(ValueError, match=message):
        landscape.between(task, wider.init(jax.random.key(0)), b, data)
    with pytest.raises(ValueError, match="b are not parameters of this task's model"):
        landscape.line(task, a, {"head": b["head"]}, data)


def test_bad_numbers_are_refused(clients, found):
    with pytest.raises(ValueError, match="expected ascending numbers"):
        landscape.line(*clients, t=(0.0, 1.0, 0.5))
    for function in (landscape.line, landscape.between):
        with pytest.raises(ValueError, match="batch_size is 0, expected a whole"):
            function(*clients, batch_size=0)
    nobody = clients[3]._replace(size=np.zeros(CLIENTS, int))
    with pytest.raises(ValueError, match="data has no examples"):
        landscape.line(*clients[:3], landscape.pooled(nobody))
    with pytest.raises(ValueError, match="metric 'los' is unknown; known: accuracy,"):
        landscape.barrier(found, "los")
    part = Line(found.t[1:], {m: v[:, 1:] for m, v in found.metrics.items()})
    with pytest.raises(ValueError, match="expected t = 0 and t = 1"):
        landscape.barrier(part)
    ends = Line(found.t[[0, 3]], {m: v[:, [0, 3]] for m, v in found.metrics.items()})
    with pytest.raises(ValueError, match=r"expected t = 0\.5 among them"):
        landscape.midpoint(ends)


def test_the_figure_has_a_band_of_clients_alone(found):
    one = Line(found.t, {m: v[0] for m, v in found.metrics.items()})
    figure = landscape.draw_line({"all": found, "first": one}, "loss")
    (axes,) = figure.axes
    assert len(axes.collections) == 1
    curves = [line for line in axes.lines if len(line.get_xdata()) == len(T)]
    for curve, values in zip(curves, (found.metrics["loss"].mean(0), one), strict=True):
        wanted = values.metrics["loss"] if values is one else values
        np.testing.assert_allclose(curve.get_ydata(), wanted, rtol=1e-6)
        np.testing.assert_allclose(curve.get_xdata(), T)
    assert axes.get_ylabel() == "loss"
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["all", "first"]


def test_what_is_not_finite_is_nan_and_the_other_end_is_whole():
    task, (_, test) = toy.classifier(), toy.ragged()
    own = toy.one(test, SOME[0])
    good = task.init(jax.random.key(0))
    broken = jax.tree.map(lambda leaf: leaf + np.nan, good)
    found = landscape.line(task, good, broken, own, t=T)
    alone = landscape.line(task, good, good, own, t=(0, 1))
    for name in METRICS:
        values = found.metrics[name]
        np.testing.assert_array_equal(values[0], alone.metrics[name][0])
        assert np.isnan(values[1:]).all()
    assert np.isnan(landscape.barrier(found, "accuracy"))
    assert np.isnan(landscape.flat_range(found))
    assert np.isnan(landscape.between(task, good, broken, own).ensemble["accuracy"])
    both = jax.tree.map(lambda a, b: np.stack([a, b]), good, broken)
    walls = landscape.pairs(task, both, own).line.metrics["accuracy"]
    assert np.isnan(walls[0, 1]).all() or np.isnan(walls[0, 1, 1:]).all()
    assert np.isfinite(walls[0, 0]).all()
