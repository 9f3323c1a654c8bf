"""Sums of outputs and numbers of examples by class, for one client."""

import jax
import jax.numpy as jnp

from pfljax.core.training import mean_over_examples
from pfljax.core.types import Array, Batch, ClientData


def class_sums(z: Array, batch: Batch, classes: int) -> tuple[Array, Array]:
    """(sum of the outputs z [B, ...] of each class f32[K, e], their number f32[K])."""
    member = jax.nn.one_hot(batch.y, classes) * batch.mask[:, None]
    vectors = z.reshape(len(z), -1)
    # An accelerator's default would round features to a few bits.
    total = jnp.matmul(member.T, vectors, precision="highest")
    return total, jnp.sum(member, 0)


def class_counts(data: ClientData, classes: int, batch_size: int) -> Array:
    """The number of examples of each class that a client has, f32[K]."""

    def shares(batch: Batch) -> Array:
        _, count = class_sums(batch.mask, batch, classes)
        return count / jnp.maximum(jnp.sum(batch.mask), 1)

    share = mean_over_examples(shares, data, batch_size)
    return jnp.round(share * data.size)
