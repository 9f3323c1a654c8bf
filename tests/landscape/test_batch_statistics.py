"""Running statistics between models, against a second pass by hand in float64."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from pfljax import landscape, models
from pfljax.conformance import toy
from pfljax.core import tree
from pfljax.core.types import ClientData
from pfljax.landscape import batch_statistics, stacked

TRAIN, TEST = toy.ragged(held_out=4)
T = (0.0, 0.25, 0.5, 1.0)


def network(momentum=0.9):
    norm = nn.BatchNorm(momentum=momentum)
    body = nn.Sequential([nn.Dense(4), norm, nn.relu])
    return models.Network(body, nn.Dense(3))


class Nnx(nnx.Module):
    def __init__(self, rngs):
        norm = nnx.BatchNorm(4, momentum=0.5, rngs=rngs)
        layers = [nnx.Linear(3, 4, rngs=rngs), norm, nnx.relu]
        self.body = nnx.Sequential(*layers)
        self.head = nnx.Linear(4, 3, rngs=rngs)


TASK = models.task(network(), (3,))


def drawn(seed):
    """Parameters with noise everywhere; variances stay positive."""
    rng = np.random.default_rng(seed)

    def move(leaf):
        moved = leaf + rng.normal(0, 0.7, leaf.shape)
        return np.float32(np.abs(moved) if leaf.ndim == 1 else moved)

    return jax.tree.map(move, TASK.init(jax.random.key(seed)))


def spans(data, clients):
    """x, y of clients, one after another, in float64."""
    each = [
        np.arange(data.offset[k], data.offset[k] + data.size[k], dtype=int)
        for k in clients
    ]
    index = np.concatenate(each)
    x, y = (np.asarray(leaf)[index] for leaf in data.examples)
    return x.astype(np.float64), y


def loss_by_hand(params, train, test, own=False):
    """The loss on `test` with statistics of `train`, or with the model's own."""
    w = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    dense, norm = w["body"]["layers_0"], w["body"]["layers_1"]

    def forward(x):
        return x @ dense["kernel"] + dense["bias"]

    z = forward(train[0])
    mean, var = z.mean(0), z.var(0)
    if own:
        mean, var = (norm["batch_stats"][name] for name in ("mean", "var"))
    z = (forward(test[0]) - mean) / np.sqrt(var + 1e-5) * norm["scale"] + norm["bias"]
    logits = np.maximum(z, 0) @ w["head"]["kernel"] + w["head"]["bias"]
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return -log_p[np.arange(len(log_p)), test[1]].mean()


def mixed(a, b, t):
    return jax.tree.map(lambda p, q: (1 - t) * p + t * q, a, b)


@pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_line_has_the_statistics_of_each_clients_training_examples(
    width, monkeypatch
):
    monkeypatch.setattr(stacked, "choose_width", lambda *_: width)
    a, b = drawn(1), drawn(2)
    found = landscape.line(TASK, a, b, TEST, t=T, train=TRAIN).metrics["loss"]
    for k in (0, 5):
        rows = spans(TRAIN, [k]), spans(TEST, [k])
        expected = [
            loss_by_hand(mixed(a, b, t), *rows, own=t in (0, 1)) for t in T
        ]  # the ends keep theirs
        np.testing.assert_allclose(found[k], expected, rtol=2e-4)


def test_statistics_may_still_be_mixed():
    a, b = drawn(1), drawn(2)
    found = landscape.line(TASK, a, b, TEST, t=T, statistics="mix")
    rows = spans(TRAIN, [5]), spans(TEST, [5])
    own, recomputed = (
        loss_by_hand(mixed(a, b, 0.5), *rows, own=own) for own in (True, False)
    )
    assert found.metrics["loss"][5, 2] == pytest.approx(own, rel=1e-4)
    assert abs(own - recomputed) > 0.01


@pytest.mark.slow
def test_a_pair_has_the_statistics_of_both_clients():
    together = jax.tree.map(lambda *leaves: np.stack(leaves), *map(drawn, range(8)))
    i, j = np.array([6, 2]), np.array([3, 2])
    found = landscape.pair_lines(TASK, together, TEST, i, j, t=T, train=TRAIN)
    for n, (k, other) in enumerate(zip(i, j, strict=True)):
        rows = spans(TRAIN, [k, other]), spans(TEST, [k, other])
        middle = loss_by_hand(mixed(drawn(k), drawn(other), 0.5), *rows)
        assert found.line.metrics["loss"][n, 2] == pytest.approx(middle, rel=2e-4)
    pooled = landscape.pooled(TEST), landscape.pooled(TRAIN)
    found = landscape.pair_lines(TASK, together, pooled[0], i, j, t=T, train=pooled[1])
    rows = spans(TRAIN, range(8)), spans(TEST, range(8))
    middle = loss_by_hand(mixed(drawn(6), drawn(3), 0.5), *rows)
    assert found.line.metrics["loss"][0, 2] == pytest.approx(middle, rel=2e-4)


@pytest.mark.parametrize(("momentum", "most"), [(0.9, 16), (0.3, 2)])
def test_statistics_are_means_of_batches_that_reach_over_all_examples(
    momentum, most, monkeypatch
):
    """Every third example is in a batch, and of three batches two may be used."""
    monkeypatch.setattr(batch_statistics, "BATCHES", most)
    module, data = network(momentum), toy.one(TRAIN, 1)
    params = drawn(3)
    x, _ = spans(TRAIN, [1])  # 20 examples
    task = models.task(module, (3,))
    how = batch_statistics.Recompute(task.logits, 8)
    found = jax.jit(partial(batch_statistics.recompute, how))(params, data)
    batches = [x[start::3] for start in range(3)][:most]
    dense = params["body"]["layers_0"]
    z = [batch @ dense["kernel"] + dense["bias"] for batch in batches]
    running = found["body"]["layers_1"]["batch_stats"]
    for name, function in (("mean", np.mean), ("var", np.var)):
        of_batches = [function(part, axis=0) for part in z]
        sizes = [len(part) for part in z]
        expected = np.average(of_batches, axis=0, weights=sizes)
        np.testing.assert_allclose(running[name], expected, rtol=1e-4)
    toy.assert_same(tree.parameters(found), tree.parameters(params))


def test_a_model_of_nnx_and_a_client_without_examples():
    task = models.task_from_nnx(Nnx, (3,))
    params = task.init(jax.random.key(0))
    how = batch_statistics.Recompute(task.logits, 20)
    pass_over = jax.jit(partial(batch_statistics.recompute, how))
    found = pass_over(params, toy.one(TRAIN, 1))
    x, _ = spans(TRAIN, [1])
    dense = params["body"]["layers"]["0"]
    running = found["body"]["layers"]["1"]["batch_stats"]
    z = x @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"])
    np.testing.assert_allclose(running["mean"], z.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(running["var"], z.var(0), rtol=1e-4)
    nobody = ClientData(TRAIN.examples, jnp.int32(0), jnp.int32(0))
    toy.assert_same(pass_over(params, nobody), params)


@pytest.mark.slow
def test_a_plane_beyond_its_models_is_finite_and_a_curve_keeps_its_ends():
    """Variances that are extrapolated below 0 have no square root."""
    a, b, c = (drawn(seed) for seed in (1, 2, 3))
    a["body"]["layers_1"]["batch_stats"]["var"] += 9
    train, test = landscape.pooled(TRAIN), landscape.pooled(TEST)
    frame = landscape.around(a, tree.sub(b, a), tree.sub(c, a))
    grid = partial(landscape.plane, TASK, frame, test, alpha=[0, 1, 2.0], beta=[0, 1.0])
    assert np.isnan(grid(statistics="mix").metrics["loss"]).any()
    found = grid(train=train).metrics["loss"]
    rows = spans(TRAIN, range(8)), spans(TEST, range(8))
    assert found[0, 0] == pytest.approx(loss_by_hand(a, *rows, own=True), rel=1e-4)
    assert found[1, 0] == pytest.approx(loss_by_hand(b, *rows), rel=1e-4)
    assert np.isfinite(found).all()
    points = jax.tree.map(lambda *leaves: np.stack(leaves), a, b, c)
    t = (0.0, 0.5, 1.0)
    bent = landscape.curve(TASK, points, test, kind="chain", t=t, train=train)
    expected = [loss_by_hand(w, *rows, own=w is not b) for w in (a, b, c)]
    np.testing.assert_allclose(bent.metrics["loss"], expected, rtol=1e-4)


def test_examples_are_asked_for_where_there_are_statistics():
    a = drawn(1)
    with pytest.raises(ValueError, match="train is None, expected training examples"):
        landscape.line(TASK, a, a, TEST, t=T)
    three = ClientData(TRAIN.examples, TRAIN.offset[:3], TRAIN.size[:3])
    with pytest.raises(ValueError, match="a one, b one, data 8, train 3"):
        landscape.line(TASK, a, a, TEST, t=T, train=three)
