"""Changes that are clipped and noised at the client."""

from typing import Any

import jax
import jax.numpy as jnp

from pfljax.channel import origins
from pfljax.channel.base import Channel, sending
from pfljax.core import tree
from pfljax.core.factories import component
from pfljax.core.ranges import NotNegative, Positive
from pfljax.core.types import Array, Key, Origin, Upload


@component
def clip(*, norm: Positive = 1.0) -> Channel:
    """Scales the change of a client to an L2 norm of at most `norm`, over all leaves.

    McMahan et al., ICLR 2018, https://arxiv.org/abs/1710.06963 (section 2, flat
    clipping). The change is the upload minus its origin. With a large `norm` nothing is
    clipped; with a small one the upload is nearly its origin. Counts and flags pass
    unchanged.

    Args:
      norm: largest L2 norm of a change, over all leaves.
    """

    def send(key: Key, origin: Origin, upload: Upload) -> Upload:
        clipped, _ = clipped_to(norm, origin, upload)
        return clipped

    return sending(send)


def clipped_to(norm: Any, origin: Origin, upload: Upload) -> tuple[Upload, Array]:
    """(the upload whose change is no longer than `norm`, whether it was, bool[])."""
    start, values, others = origins.parts(origin, upload)
    change = tree.sub(values, start)
    length = jnp.sqrt(tree.square_norm(change))
    shrunk = tree.axpy(norm / jnp.maximum(length, norm), change, start)
    # An upload that is not longer than the norm keeps its bits.
    clipped = tree.where(length > norm, shrunk, values)
    return tree.merge(clipped, others), length <= norm


@component
def gaussian(*, std: NotNegative = 0.01) -> Channel:
    """Adds noise from N(0, std^2) to each element of a client's change.

    After `clip` it is the Gaussian mechanism at the client (local differential
    privacy), with std = noise multiplier * norm.

    Args:
      std: standard deviation of the noise; 0 adds none.
    """

    def send(key: Key, origin: Origin, upload: Upload) -> Upload:
        leaves, structure = jax.tree.flatten(upload)
        if not leaves:  # no key can be split into none
            return upload
        keys = jax.random.split(key, len(leaves))
        leaf_keys = jax.tree.unflatten(structure, list(keys))

        def noisy(leaf: Array, start: Any, leaf_key: Key) -> Array:
            if not origins.is_change(leaf, start):
                return leaf
            noise = jax.random.normal(leaf_key, leaf.shape, leaf.dtype)
            return leaf + std * noise

        return jax.tree.map(noisy, upload, origin, leaf_keys)

    return sending(send)
