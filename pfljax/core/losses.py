"""Penalties that a method adds to the data loss, and the loss of its own logits."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax

from pfljax.core import tree
from pfljax.core.types import Array, Batch, Params


def proximal(anchor: Params, mu: Any) -> Callable[[Params], Array]:
    """params -> mu / 2 ||p - anchor||^2 (Li et al., FedProx, eq. 2)."""

    def penalty(params: Params) -> Array:
        shift = tree.sub(params, anchor)
        return mu * (tree.square_norm(shift) / 2)

    return penalty


def cross_entropy(logits: Array, batch: Batch) -> Array:
    """Mean cross-entropy of logits [B, K] over the rows that count, f32[].

    For a method whose logits come from several models; `Task.loss` is that of one.
    """
    rows = optax.softmax_cross_entropy_with_integer_labels(logits, batch.y)
    count = jnp.maximum(jnp.sum(batch.mask), 1)  # no row counts: 0, not NaN
    return jnp.sum(batch.mask * rows) / count
