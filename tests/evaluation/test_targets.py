"""Metrics of every kind of task, against scikit-learn."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as reference

from pfljax.core.kinds import KINDS, Scoring
from pfljax.core.types import ClientData, Examples
from pfljax.evaluation import metrics, whole

N, PADDED = 23, 40  # the examples of the client, and of the pool
RNG = np.random.default_rng(0)


def scores(data, batch_size, scoring):
    """The metrics of outputs that stand in the place of the inputs."""

    @jax.jit
    def program(data):
        return metrics.score(lambda batch: batch.x, data, batch_size, scoring=scoring)

    return program(data)


def score(kind, outputs, y, names=()):
    """Metrics of a client whose examples are in the middle of a pool."""
    found = tuple((name, whole.METRICS[name]) for name in names)
    losses = next(iter(KINDS[kind].losses.values()))
    scoring = Scoring(kind, losses, found, N)
    pool = Examples(jnp.asarray(outputs), jnp.asarray(y))
    data = ClientData(pool, jnp.int32(5), jnp.int32(N))
    found = scores(data, 4, scoring)
    return {name: float(value) for name, value in found.items()}


def own(values):
    return np.asarray(values)[5 : 5 + N]


def test_reals():
    y = RNG.normal(100, 3, (PADDED, 3)).astype(np.float32)
    y[:, 2] = 1.7  # it does not vary, and so has no R2
    outputs = y + RNG.normal(size=y.shape).astype(np.float32)
    outputs[0], outputs[-1] = np.nan, np.inf  # of other clients
    found = score("regression", outputs, y, ["r2"])
    a, b = own(y), own(outputs)
    mse = reference.mean_squared_error(a, b)
    expected = {
        "rmse": np.sqrt(mse),
        "mae": reference.mean_absolute_error(a, b),
        "r2": reference.r2_score(a[:, :2], b[:, :2]),
        "loss": mse,
    }
    assert found == pytest.approx(expected, rel=1e-5)
    assert np.isnan(score("regression", outputs[:, 2:], y[:, 2:], ["r2"])["r2"])


def test_labels():
    y = (RNG.random((PADDED, 5)) < 0.3).astype(np.float32)
    y[:, 4] = 0  # a label that nobody has
    logits = RNG.normal(size=y.shape).astype(np.float32) + y
    logits[:, 4] -= 9
    found = score("multilabel", logits, y, ["mean_average_precision"])
    a, b = own(y), own(logits)
    f1 = partial(reference.f1_score, a, b > 0, zero_division=0)
    precision = reference.average_precision_score(a[:, :4], b[:, :4], average="macro")
    expected = {
        "micro_f1": f1(average="micro"),
        "macro_f1": f1(average="macro"),
        "label_accuracy": np.mean((b > 0) == (a > 0)),
        "mean_average_precision": precision,
        "loss": np.mean(np.logaddexp(0, b) - a * b),
    }
    assert found == pytest.approx(expected, rel=1e-5)


def test_tokens():
    y = RNG.integers(-1, 4, (PADDED, 6)).astype(np.int32)
    y[:, 0] = 2  # each sequence has a token that counts
    logits = RNG.normal(size=(PADDED, 6, 4)).astype(np.float32)
    found = score("tokens", logits, y)
    a, b = own(y), own(logits)
    log_p = b - np.log(np.exp(b).sum(-1, keepdims=True))
    counted = a >= 0
    loss = -np.take_along_axis(log_p, np.maximum(a, 0)[..., None], -1)[..., 0]
    expected = {
        "accuracy": np.mean(b.argmax(-1)[counted] == a[counted]),
        "perplexity": np.exp(loss[counted].mean()),
        "loss": np.mean([row[c].mean() for row, c in zip(loss, counted, strict=True)]),
    }
    assert found == pytest.approx(expected, rel=1e-5)


def test_classes():
    y = RNG.integers(0, 3, PADDED).astype(np.int32)  # nobody has the class 3
    logits = RNG.normal(size=(PADDED, 4)).astype(np.float32)
    logits[:, 3] -= 9
    logits = np.round(logits, 1)  # with ties
    names = ["balanced_accuracy", "macro_f1", "auc"]
    found = score("classes", logits, y, names)
    a, b = own(y), own(logits)
    p = np.exp(b) / np.exp(b).sum(1, keepdims=True)
    areas = [reference.roc_auc_score(a == k, p[:, k]) for k in range(3)]
    expected = {
        "balanced_accuracy": reference.balanced_accuracy_score(a, b.argmax(1)),
        "macro_f1": reference.f1_score(a, b.argmax(1), average="macro"),
        "auc": np.mean(areas),
    }
    assert {name: found[name] for name in names} == pytest.approx(expected, rel=1e-4)


def test_ratings():
    y = RNG.integers(1, 6, (PADDED, 1)).astype(np.float32)
    outputs = RNG.normal(size=(PADDED, 1)).astype(np.float32)
    found = score("ratings", outputs, y, ["hit_rate", "ndcg"])
    a, b = own(y)[:, 0], own(outputs)[:, 0]
    # scikit-learn's gains are the ratings themselves.
    assert found["ndcg"] == pytest.approx(reference.ndcg_score([a], [b], k=10), 1e-5)
    top = a[np.argsort(-b)[:10]] >= 4
    assert found["hit_rate"] == pytest.approx(top.sum() / min(10, (a >= 4).sum()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_without_examples_has_no_metric(kind):
    width = 2 if kind == "multilabel" else 1
    y = {"classes": jnp.zeros(4, int), "tokens": jnp.zeros((4, 3), int)}
    outputs = {"classes": jnp.ones((4, 2)), "tokens": jnp.ones((4, 3, 2))}
    names = whole.OF_KIND[kind]
    pool = Examples(
        outputs.get(kind, jnp.ones((4, width))), y.get(kind, jnp.ones((4, width)))
    )
    losses = next(iter(KINDS[kind].losses.values()))
    found = tuple((name, whole.METRICS[name]) for name in names)
    scoring = Scoring(kind, losses, found, 3)
    nobody = ClientData(pool, jnp.int32(1), jnp.int32(0))
    values = scores(nobody, 2, scoring)
    assert values
    assert all(np.isnan(value) for value in values.values())
