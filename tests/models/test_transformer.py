"""The transformer against a forward pass in NumPy, in float64."""

import jax
import numpy as np
import pytest

from pfljax import models
from pfljax.core.types import Batch

HEADS, WIDTH, CLASSES = 2, 6, 5


def norm(x, p):
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return centred / deviation * p["scale"] + p["bias"]


def gelu(x):  # by the tanh, which is Flax's default
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def attention(x, p, causal):
    """Of one sequence [T, d], head by head."""
    out = p["out"]["bias"].copy() * np.ones_like(x)
    for head in range(HEADS):
        q, k, v = (
            x @ p[name]["kernel"][:, head] + p[name]["bias"][head]
            for name in ("query", "key", "value")
        )
        scores = q @ k.T / np.sqrt(WIDTH / HEADS)
        if causal:
            scores[np.triu_indices(len(x), 1)] = -np.inf
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        out += weights @ v @ p["out"]["kernel"][head]
    return out


def forward(params, x, causal, each):
    """Logits of one example."""
    *first, positions, one, two, last = params["body"].values()
    if "embedding" in first[0]:
        x = first[0]["embedding"][x]
    else:
        kernel, bias = first[0]["kernel"], first[0]["bias"]
        side = len(kernel)
        x = np.array([
            np.tensordot(x[i : i + side, j : j + side, None], kernel, 3) + bias
            for i in range(0, len(x), side)
            for j in range(0, x.shape[1], side)
        ])  # fmt: skip
    x = x + positions["positions"]
    for p in (one, two):
        x = x + attention(norm(x, p["norm_attention"]), p["attention"], causal)
        hidden = norm(x, p["norm_dense"]) @ p["expand"]["kernel"] + p["expand"]["bias"]
        x = x + gelu(hidden) @ p["contract"]["kernel"] + p["contract"]["bias"]
    x = norm(x, last)
    if not each:
        x = x[-1] if causal else x.mean(0)
    return x @ params["head"]["kernel"] + params["head"]["bias"]


@pytest.mark.parametrize(
    ("options", "shape", "kind"),
    [
        ({"each": True}, (7,), "tokens"),
        ({}, (7,), "classes"),
        ({"causal": False}, (7,), "classes"),
        ({"causal": False, "patch": 2}, (4, 6), "classes"),
    ],
)
def test_logits_are_those_of_numpy(options, shape, kind):
    module = models.transformer(
        CLASSES, vocab=11, features=WIDTH, heads=HEADS, **options
    )
    task = models.task(module, shape, kind=kind)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 11, (3, *shape))
    drawn = jax.tree.map(
        lambda leaf: rng.normal(0, 0.5, leaf.shape),
        jax.eval_shape(task.init, jax.random.key(0)),
    )
    order = sorted(drawn["body"], key=lambda name: int(name.removeprefix("layers_")))
    params = {"body": {n: drawn["body"][n] for n in order}, "head": drawn["head"]}
    options = {"causal": True, "each": False} | options
    expected = [forward(params, x_i, options["causal"], options["each"]) for x_i in x]
    single = jax.tree.map(np.float32, drawn)
    found = jax.jit(task.predict)(single, Batch.full(x))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_parameters_are_counted():
    task = models.task(models.transformer(80), (80,))
    shapes = jax.eval_shape(task.init, jax.random.key(0))
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert count == 115_536


def test_heads_divide_the_features():
    with pytest.raises(ValueError, match="heads is 3; expected a divisor of the 64"):
        models.transformer(80, heads=3)
