"""Penalties that a method adds to the data loss, and the loss of its own logits."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax

from pfljax.core import tree
from pfljax.core.types import Array, Batch, Params


def proximal(
    anchor: Params, mu: Any, form: str = "squared"
) -> Callable[[Params], Array]:
    """params -> mu times their `distance` to `anchor`, which stays fixed."""
    return lambda params: mu * distance(params, anchor, form)


def distance(params: Params, anchor: Params, form: str = "squared") -> Array:
    """A proximal term, f32[].

    "squared" is 1/2 ||p - anchor||^2 (Li et al., FedProx, eq. 2). "norm" is the sum
    over tensors of ||p - anchor||, as in SuPerFed's code (which leaves out biases for
    FedProx, Ditto and pFedMe; its models have none but those of batch normalisation).
    """
    if form not in ("squared", "norm"):
        raise ValueError(f"prox is {form!r}; known: 'squared', 'norm'")
    shift = tree.sub(params, anchor)
    return tree.square_norm(shift) / 2 if form == "squared" else tree.norms(shift)


def cross_entropy(logits: Array, batch: Batch) -> Array:
    """Mean cross-entropy of logits [B, K] over the rows that count, f32[].

    For a method whose logits come from several models; `Task.loss` is that of one.
    """
    rows = optax.softmax_cross_entropy_with_integer_labels(logits, batch.y)
    return jnp.sum(batch.mask * rows) / jnp.maximum(jnp.sum(batch.mask), 1)
