"""REPAIR of hidden units on lines, against NumPy in float64."""

from functools import partial

import jax
import numpy as np
import pytest

from pfljax import landscape, models
from pfljax.conformance import toy
from pfljax.core.types import Batch, ClientData
from pfljax.landscape import batch_statistics
from pfljax.landscape.activations import change_outputs

TRAIN, TEST = toy.ragged(held_out=4)
TASK = models.task(models.model("mlp", 3, hidden=(6, 5)), (3,))
LAYERS = (("body", "layers_1"), ("body", "layers_3"), ("head",))
T = np.array([0.0, 0.25, 0.5, 1.0])


def ends():
    """Two models whose first units nearly cancel halfway: their variance collapses."""
    rng = np.random.default_rng(0)
    a = jax.tree.map(
        lambda leaf: np.float32(rng.normal(0, 1, leaf.shape)),
        jax.eval_shape(TASK.init, jax.random.key(0)),
    )
    b = jax.tree.map(lambda leaf: np.float32(leaf + rng.normal(0, 0.1, leaf.shape)), a)
    b["body"]["layers_1"] = jax.tree.map(np.negative, b["body"]["layers_1"])
    return a, b


def weights(model, path):
    for name in path:
        model = model[name]
    return (np.asarray(model[name], np.float64) for name in ("kernel", "bias"))


def forward(model, x, change):
    """The logits, with `change(number, preactivations)` of each hidden layer."""
    for number, path in enumerate(LAYERS):
        kernel, bias = weights(model, path)
        x = x @ kernel + bias
        if number < 2:
            x = np.maximum(change(number, x), 0)
    return x


def rows(data, k):
    own = slice(int(data.offset[k]), int(data.offset[k] + data.size[k]))
    x, y = (np.asarray(leaf)[own] for leaf in data.examples)
    return x.astype(np.float64), y


def moments(z):
    return np.stack([z.mean(0), z.std(0)])


def repair_by_hand(t, k):
    """(targets, {layer: (scale, shift)}, the mixture) for the client k."""
    x, _ = rows(TRAIN, k)
    a, b = ends()
    of_ends = [[], []]
    for model, found in zip((a, b), of_ends, strict=True):
        forward(model, x, lambda _, z, found=found: found.append(moments(z)) or z)
    targets = [(1 - t) * p + t * q for p, q in zip(*of_ends, strict=True)]
    mixture = jax.tree.map(lambda p, q: (1 - t) * np.float64(p) + t * q, a, b)
    affine = {}

    def change(number, z):
        scale = targets[number][1] / z.std(0)
        affine[number] = scale, targets[number][0] - scale * z.mean(0)
        return scale * z + affine[number][1]

    forward(mixture, x, change)
    return targets, affine, mixture


def apply(affine, number, z):
    scale, shift = affine[number]
    return scale * z + shift


def test_a_line_is_that_of_models_repaired_by_hand():
    a, b = ends()
    given = {"t": T, "train": TRAIN}
    found = landscape.line(TASK, a, b, TEST, statistics="repair", **given)
    plain = landscape.line(TASK, a, b, TEST, **given)
    for at in (0, -1):  # the ends are as they were
        np.testing.assert_array_equal(
            found.metrics["loss"][:, at], plain.metrics["loss"][:, at]
        )
    for k in (1, 5):
        for n, t in ((1, 0.25), (2, 0.5)):
            _, affine, mixture = repair_by_hand(t, k)
            x, y = rows(TEST, k)
            logits = forward(mixture, x, partial(apply, affine))
            log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            expected = -log_p[np.arange(len(y)), y].mean()
            assert found.metrics["loss"][k, n] == pytest.approx(expected, rel=2e-4)
            assert abs(plain.metrics["loss"][k, n] - expected) > 0.02


@pytest.mark.slow
def test_repaired_units_have_the_statistics_between_those_of_the_ends():
    a, b = ends()
    own, x = toy.one(TRAIN, 1), np.float32(rows(TRAIN, 1)[0])
    how = batch_statistics.choose(TASK, "repair", own)
    mix = batch_statistics.mix(how, TASK.predict, (a, b), own)
    targets, *_ = repair_by_hand(0.5, 1)
    for keep in (False, True):
        _, predict = mix(np.float32([0.5, 0.5]), keep)
        found = {}

        def note(module, output, found=found):
            found["/".join(module.path)] = moments(np.asarray(output, np.float64))
            return output

        change_outputs(
            lambda _, batch, own=predict: own(batch), None, Batch.full(x), note
        )
        layers = [found[name] for name in ("body/layers_1", "body/layers_3")]
        if keep:
            assert (layers[0][1] < 0.2 * targets[0][1]).all()
        else:
            np.testing.assert_allclose(layers[0], targets[0], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(layers[1], targets[1], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_pair_is_repaired_by_the_examples_of_both_clients():
    both = jax.tree.map(lambda *leaves: np.stack(leaves * 4), *ends())
    i, j = np.array([2]), np.array([5])
    given = {"t": T, "statistics": "repair"}
    found = landscape.pair_lines(TASK, both, TEST, i, j, train=TRAIN, **given)
    test, train = (
        landscape.pooled(ClientData(d.examples, *(leaf[k] for leaf in d[1:])))
        for d, k in ((TEST, np.array([2, 5])), (TRAIN, np.array([2, 5])))
    )
    alone = landscape.line(TASK, *ends(), test, train=train, **given)
    np.testing.assert_allclose(
        found.line.metrics["loss"][0], alone.metrics["loss"], rtol=1e-4
    )


def test_what_cannot_be_repaired_is_one_line():
    a, b = ends()
    line = {"statistics": "repair", "train": TRAIN}
    with pytest.raises(ValueError, match="which is for t from 0 to 1 of a line"):
        landscape.line(TASK, a, b, TEST, t=(0, 1.5), **line)
    frame = landscape.around(a, a, b)
    with pytest.raises(ValueError, match="which is for t from"):
        landscape.plane(TASK, frame, TEST, alpha=[0, 1], beta=[0, 1], **line)
    with pytest.raises(ValueError, match="train is None, expected training examples"):
        landscape.line(TASK, a, b, TEST, statistics="repair")
    flat = models.task(models.model("logistic", 3), (3,))
    own = flat.init(jax.random.key(0))
    with pytest.raises(ValueError, match="with hidden dense layers or convolutions"):
        landscape.line(flat, own, own, TEST, **line)
