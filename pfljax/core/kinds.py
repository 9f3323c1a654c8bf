"""Kinds of tasks: what the target of an example is, and how outputs are scored.

kind        target y                    outputs       the metric that reports lead with
classes     i32[N], 0 .. K - 1          [B, K]        accuracy
multilabel  f32[N, K] of 0 and 1        [B, K]        micro_f1
regression  f32[N, D]                   [B, D]        rmse
tokens      i32[N, L], -1 not counted   [B, L, V]     accuracy, of tokens
ratings     f32[N, 1]; x is user, item  [B, 1]        rmse
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.core.ranges import NotNegative, Share

Array = jax.Array
# (outputs [B, ...], y [B, ...]) -> the loss of each example, f32[B]
ExampleLoss = Callable[..., Array]


class Kind(NamedTuple):
    """A kind of task."""

    losses: Mapping[str, ExampleLoss]  # by name, the default first
    # (outputs [n, B, ...] of n models, log weights [n] or None for equal ones)
    # -> those of their ensemble
    average: Callable[..., Array]
    headline: str  # the metric that reports lead with
    target: str  # as messages describe it


def cross_entropy(
    outputs: Array, y: Array, *, smoothing: Share = 0.0, weights: tuple = ()
) -> Array:
    """The cross-entropy of logits [B, K] and classes i32[B].

    Args:
      outputs: logits.
      y: classes.
      smoothing: share of the target that is spread evenly over all classes.
      weights: the weight of each class, K numbers; () for 1.
    """
    if smoothing:
        target = optax.smooth_labels(jax.nn.one_hot(y, outputs.shape[-1]), smoothing)
        losses = optax.softmax_cross_entropy(outputs, target)
    else:
        losses = optax.softmax_cross_entropy_with_integer_labels(outputs, y)
    if not weights:
        return losses
    if len(weights) != outputs.shape[-1]:
        raise ValueError(
            f"cross_entropy has {len(weights)} weights, expected one for each of the "
            f"{outputs.shape[-1]} classes"
        )
    return losses * jnp.asarray(weights, jnp.float32)[y]


def cross_entropy_of_tokens(outputs: Array, y: Array) -> Array:
    """The mean cross-entropy over the tokens of each sequence that count, f32[B]."""
    counted = (y >= 0).astype(jnp.float32)
    losses = optax.softmax_cross_entropy_with_integer_labels(outputs, jnp.maximum(y, 0))
    return jnp.sum(losses * counted, -1) / jnp.maximum(jnp.sum(counted, -1), 1)


def binary_cross_entropy(outputs: Array, y: Array) -> Array:
    """The mean over labels of the cross-entropy of logits [B, K] and y [B, K]."""
    return jnp.mean(optax.sigmoid_binary_cross_entropy(outputs, y), -1)


def squared(outputs: Array, y: Array) -> Array:
    """The mean over targets of (output - y)^2."""
    return jnp.mean(jnp.square(outputs - y), -1)


def absolute(outputs: Array, y: Array) -> Array:
    """The mean over targets of |output - y|."""
    return jnp.mean(jnp.abs(outputs - y), -1)


def huber(outputs: Array, y: Array, *, delta: NotNegative = 1.0) -> Array:
    """Huber's loss: quadratic up to an error of `delta`, linear beyond."""
    return jnp.mean(optax.huber_loss(outputs, y, delta=delta), -1)


def _mean_probability(outputs: Array, log_weights: Any = None) -> Array:
    """Log probabilities of the mean of softmax outputs over the models."""
    log_p = jax.nn.log_softmax(outputs)
    if log_weights is None:
        return jax.nn.logsumexp(log_p, axis=0) - math.log(len(outputs))
    return jax.nn.logsumexp(_with_axes_of(log_p, log_weights) + log_p, axis=0)


def _mean_of_labels(outputs: Array, log_weights: Any = None) -> Array:
    """Logits of the mean of sigmoid outputs over the models."""
    p = _mean(jax.nn.sigmoid(outputs), log_weights)
    return jnp.log(p) - jnp.log1p(-p)


def _mean(outputs: Array, log_weights: Any = None) -> Array:
    if log_weights is None:
        return jnp.mean(outputs, 0)
    return jnp.sum(_with_axes_of(outputs, jnp.exp(log_weights)) * outputs, 0)


def _with_axes_of(outputs: Array, weights: Array) -> Array:
    """The weights [n] with further axes of length 1, as outputs [n, ...] have."""
    return weights.reshape(-1, *[1] * (outputs.ndim - 1))


REAL = {"squared": squared, "absolute": absolute, "huber": huber}
KINDS = {
    "classes": Kind(
        {"cross_entropy": cross_entropy},
        _mean_probability,
        "accuracy",
        "integers [N], a class for each example",
    ),
    "multilabel": Kind(
        {"binary_cross_entropy": binary_cross_entropy},
        _mean_of_labels,
        "micro_f1",
        "0 and 1 in [N, K], a column for each label",
    ),
    "regression": Kind(REAL, _mean, "rmse", "real numbers [N] or [N, D]"),
    "tokens": Kind(
        {"cross_entropy": cross_entropy_of_tokens},
        _mean_probability,
        "accuracy",
        "integers [N, L], a token for each place; -1 is not counted",
    ),
    "ratings": Kind(REAL, _mean, "rmse", "real numbers [N]; x is a user and an item"),
}

LOSSES = {name: loss for kind in KINDS.values() for name, loss in kind.losses.items()}
LOSSES["cross_entropy"] = cross_entropy  # that of tokens has no options


class Scoring(NamedTuple):
    """How models are scored, which every evaluation of a run follows."""

    kind: str = "classes"  # a name in `KINDS`
    losses: ExampleLoss = cross_entropy  # of each example
    # Metrics of all examples of a client at once, by name (`evaluation.whole`).
    whole: tuple[tuple[str, Callable[[Array, Array, Array], Array]], ...] = ()
    most: int = 0  # examples of a client at most, for these


CLASSES = Scoring()
