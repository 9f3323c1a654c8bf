"""Metrics of targets that are no classes, as sums over the examples of a client."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core.types import Array

Sums = dict[str, Array]


class Scores(NamedTuple):
    """How a kind of task is scored."""

    # (outputs [B, ...], y [B, ...], mask f32[B]) -> sums over the batch, by name
    add_up: Callable[[Array, Array, Array], Sums]
    finish: Callable[[Sums], dict[str, Array]]  # the metrics of sums
    names: tuple[str, ...]  # of the metrics


def count_reals(outputs: Array, y: Array, mask: Array) -> Sums:
    """Sums of errors, which are means over the targets of an example."""
    error = jnp.where(mask[:, None] > 0, outputs - y, 0)
    return {
        "rows": mask.sum(),
        "square": jnp.square(error).mean(1).sum(),
        "absolute": jnp.abs(error).mean(1).sum(),
    }


def score_reals(total: Sums) -> dict[str, Array]:
    """The root of the mean square error, and the mean absolute error."""
    count = count_or_nan(total["rows"])
    return {
        "rmse": jnp.sqrt(total["square"] / count),
        "mae": total["absolute"] / count,
    }


def count_labels(outputs: Array, y: Array, mask: Array) -> Sums:
    """True positives, false positives and false negatives of each label [K]."""
    counted = mask[:, None]
    said = counted * (outputs > 0)
    return {
        "rows": mask.sum(),
        "hits": (said * y).sum(0),
        "false": (said * (1 - y)).sum(0),
        "missed": (counted * y).sum(0) - (said * y).sum(0),
        "right": (counted * ((outputs > 0) == (y > 0))).mean(1).sum(),
    }


def score_labels(total: Sums) -> dict[str, Array]:
    """F1 over all labels together, the mean F1 of labels, and the share of right ones.

    As in scikit-learn, a label that is neither there nor predicted has an F1 of 0.
    """
    count = count_or_nan(total["rows"])
    hits, wrong = total["hits"], total["false"] + total["missed"]
    micro = _f1(hits.sum(-1), wrong.sum(-1))
    known = jnp.isfinite(count)
    return {
        "micro_f1": jnp.where(known, micro, jnp.nan),
        "macro_f1": jnp.where(known, _f1(hits, wrong).mean(-1), jnp.nan),
        "label_accuracy": total["right"] / count,
    }


def _f1(hits: Array, wrong: Array) -> Array:
    return 2 * hits / jnp.maximum(2 * hits + wrong, 1)


def count_tokens(outputs: Array, y: Array, mask: Array) -> Sums:
    """The tokens that count, those that are predicted, and their log likelihood."""
    counted = (mask[:, None] > 0) & (y >= 0)
    log_p = jax.nn.log_softmax(outputs)
    label = jnp.maximum(y, 0)[..., None]
    likelihood = jnp.take_along_axis(log_p, label, -1)[..., 0]
    hit = (outputs.argmax(-1) == y) & jnp.isfinite(likelihood)
    return {
        "rows": mask.sum(),
        "tokens": counted.sum(dtype=jnp.float32),
        "hits": (counted & hit).sum(dtype=jnp.float32),
        "log_p": jnp.where(counted, likelihood, 0).sum(),
    }


def score_tokens(total: Sums) -> dict[str, Array]:
    """The share of tokens that are predicted, and the perplexity."""
    count = count_or_nan(total["tokens"])
    return {
        "accuracy": total["hits"] / count,
        "perplexity": jnp.exp(-total["log_p"] / count),
    }


def count_or_nan(rows: Array) -> Array:
    """The number of examples; NaN for none, so that every metric of none is NaN."""
    return jnp.where(rows > 0, rows, jnp.nan)


LABELS = ("micro_f1", "macro_f1", "label_accuracy")
REALS = ("rmse", "mae")
TOKENS = ("accuracy", "perplexity")
SCORES = {
    "multilabel": Scores(count_labels, score_labels, LABELS),
    "regression": Scores(count_reals, score_reals, REALS),
    "tokens": Scores(count_tokens, score_tokens, TOKENS),
    "ratings": Scores(count_reals, score_reals, REALS),
}
