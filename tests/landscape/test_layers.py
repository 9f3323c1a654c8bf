"""Layers of a model, and lines on which one of them moves."""

import jax
import numpy as np
import pytest

from pfljax import landscape
from pfljax.conformance import toy
from pfljax.landscape.layers import find_layers

TASK = toy.classifier()
TEST = landscape.pooled(toy.ragged()[1])
T = (0.0, 0.5, 1.0)


def drawn(seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: np.float32(rng.normal(0, 1, leaf.shape)),
        jax.eval_shape(TASK.init, jax.random.key(0)),
    )


def loss(body, head):
    """The loss on all test examples, in float64."""
    x, y = (np.asarray(leaf) for leaf in TEST.examples)
    first = body["body"]["layers_1"]
    hidden = np.maximum(x.astype(np.float64) @ first["kernel"] + first["bias"], 0)
    logits = hidden @ head["head"]["kernel"] + head["head"]["bias"]
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return -log_p[np.arange(len(y)), y].mean()


def halfway(a, b):
    return jax.tree.map(lambda p, q: (np.float64(p) + q) / 2, a, b)


def test_one_layer_moves_and_the_others_stay():
    a, b = drawn(1), drawn(2)
    middle = halfway(a, b)
    apart = landscape.layer_lines(TASK, a, b, TEST, t=T)
    assert list(apart) == ["body/layers_1", "head"]
    for name, expected in {
        "body/layers_1": [loss(a, a), loss(middle, a), loss(b, a)],
        "head": [loss(a, a), loss(a, middle), loss(a, b)],
    }.items():
        np.testing.assert_allclose(apart[name].metrics["loss"], expected, rtol=1e-4)
    whole = landscape.layer_lines(TASK, a, b, TEST, t=T, layers=["body", "head"])
    np.testing.assert_array_equal(
        whole["body"].metrics["loss"], apart["body/layers_1"].metrics["loss"]
    )


def test_cumulative_lines_lead_from_one_model_to_the_other():
    """Also if one model is shared by the lines of all clients."""
    a, ends = drawn(1), [drawn(seed) for seed in (2, 3)]
    b = jax.tree.map(lambda *leaves: np.stack(leaves), *ends)
    lines = landscape.layer_lines(TASK, a, b, TEST, t=T, cumulative=True)
    steps = [line.metrics["loss"] for line in lines.values()]
    assert steps[0].shape == (2, 3)
    for k, end in enumerate(ends):
        rises = [step[k, -1] - step[k, 0] for step in steps]
        assert sum(rises) == pytest.approx(loss(end, end) - loss(a, a), rel=1e-4)
        middle = loss(end, halfway(a, end))
        assert steps[1][k, 1] == pytest.approx(middle, rel=1e-4)


def test_a_leaf_is_in_the_first_group_that_fits():
    groups = find_layers(TASK, ["body/layers_1/bias", "body"])
    assert jax.tree.leaves(groups["body/layers_1/bias"]) == [True, False, False, False]
    assert jax.tree.leaves(groups["body"]) == [False, True, False, False]
    with pytest.raises(ValueError, match="layers has 'bod', in which no parameter is"):
        find_layers(TASK, ["bod"])
