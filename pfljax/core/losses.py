"""Penalties that methods add to the data loss, and losses of logits."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from pfljax.core import tree
from pfljax.core.training import Objective
from pfljax.core.types import Array, Batch, Key, Params, Task

NEVER = -1e30  # a logit without probability: finite, below all others


def proximal(anchor: Params, mu: Any) -> Callable[[Params], Array]:
    """params -> mu / 2 ||p - anchor||^2 (Li et al., FedProx, eq. 2)."""

    def penalty(params: Params) -> Array:
        shift = tree.sub(params, anchor)
        return mu * (tree.square_norm(shift) / 2)

    return penalty


def data_loss(task: Task, outputs: Array, batch: Batch) -> Array:
    """Mean loss of outputs, such as logits [B, K], over the examples that count, f32[].

    For methods whose outputs come from several models; `Task.loss` is that of one.
    """
    return mean(task.example_losses(outputs, batch.y), batch)


def logits_of_both(
    task: Task, a: Params, b: Params, batch: Batch, key: Key | None = None
) -> Array:
    """Logits [2, B, K] of two models, in a loop: the network is compiled once.

    A gradient is always computed in both of them.
    """
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), a, b)
    return jax.lax.map(lambda model: task.logits(model, batch, key), stacked)


def mask_absent(logits: Array, present: Array) -> Array:
    """The logits [B, K], set to 0 for classes where `present` f32[K] is 0.

    An absent class keeps a share of the softmax, and has no gradient.
    """
    return jnp.where(present > 0, logits, 0)


def without_true(logits: Array, batch: Batch) -> Array:
    """The logits [B, K], with no probability and no gradient of the true class."""
    true = jax.nn.one_hot(batch.y, logits.shape[-1], dtype=bool)
    return jnp.where(true, NEVER, logits)


def pull_features(task: Task, pull: Callable[[Array, Batch], Array]) -> Objective:
    """The data loss + pull(features, batch), for `fit_objective`."""

    def objective(w: Params, batch: Batch, key: Key) -> tuple[Array, Array]:
        # One forward pass for both terms: two would move running statistics twice.
        z = task.features(w, batch, key)
        logits = task.head(w, z, batch.mask, key)
        loss = data_loss(task, logits, batch)
        return loss + pull(z, batch), loss

    return objective


def contrast(
    z: Array, near: Array, far: Array, temperature: Any, batch: Batch
) -> Array:
    """Mean of -log(e^near / (e^near + e^far)), of cosines with z over the temperature.

    Features are [B, ...]. Li et al., CVPR 2021 (MOON), eq. 3.
    """
    gap = cosines(z, far) - cosines(z, near)
    return mean(jax.nn.softplus(gap / temperature), batch)


def cosines(z: Array, other: Array) -> Array:
    """The cosine of two features [B, ...] of each example, f32[B]; 0 if one is zero."""
    a, b = (features.reshape(len(features), -1) for features in (z, other))
    square = jnp.sum(a * a, 1) * jnp.sum(b * b, 1)
    # Both sides of a `where` have a gradient, so neither may divide by 0.
    cosine = jnp.sum(a * b, 1) / jnp.sqrt(jnp.where(square > 0, square, 1))
    return jnp.where(square > 0, cosine, 0)


def divergence(target: Array, logits: Array, batch: Batch) -> Array:
    """Mean KL(target || logits) over the examples that count; targets are constant."""
    fixed = jax.lax.stop_gradient(jax.nn.log_softmax(target))
    predicted = jax.nn.log_softmax(logits)
    losses = optax.losses.kl_divergence_with_log_targets(predicted, fixed)
    return mean(losses, batch)


def square_distance(a: Array, b: Array, batch: Batch) -> Array:
    """Mean of (a - b)^2 over the examples that count and over features."""
    square = jnp.square(a - b).reshape(len(a), -1)
    return mean(jnp.mean(square, 1), batch)


def mean(values: Array, batch: Batch) -> Array:
    """Mean of values f32[B] over the examples that count, f32[]; without any, 0."""
    count = jnp.maximum(jnp.sum(batch.mask), 1)
    return jnp.sum(batch.mask * values) / count
