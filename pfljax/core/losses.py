"""Penalties that methods add to the data loss, and losses of logits."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from pfljax.core import tree
from pfljax.core.types import Array, Batch, Key, Params, Task


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
