"""Checksums of a state: by them a checkpoint is known to be what was saved."""

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.types import RunState


def crc(state: RunState) -> int | None:
    """CRC-32 over the bytes of all leaves in order; None where no process has all."""
    leaves = jax.tree.leaves(state)
    if not all(a.is_fully_addressable or a.is_fully_replicated for a in leaves):
        return None
    checksum = 0
    for leaf in leaves:
        array = np.ascontiguousarray(_plain(leaf))
        checksum = zlib.crc32(array.view(np.uint8).data, checksum)
    return checksum


def _plain(leaf: Any) -> Any:
    """The leaf; a key, which NumPy does not know, as its numbers."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(leaf)
    return leaf


def total(state: RunState) -> int:
    """A checksum of a state spread over processes, computed where its parts lie.

    The sum of all bytes, each times a factor of its place, modulo 2**32: sums add up
    alike in any order, so over any devices and processes, as a CRC does not.
    """

    def of_state(state: RunState) -> Any:
        sums = jnp.stack([_sum_of_leaf(leaf) for leaf in jax.tree.leaves(state)])
        odd = jnp.arange(1, 2 * len(sums), 2, jnp.uint32)
        return (sums * odd).sum()

    return int(jax.jit(of_state, out_shardings=state.round.sharding)(state))


def _sum_of_leaf(leaf: Any) -> Any:
    leaf = _plain(leaf)
    if leaf.dtype == bool:
        leaf = leaf.astype(jnp.uint8)  # bitcasts refuse a bool
    data = jax.lax.bitcast_convert_type(leaf, jnp.uint8).ravel()
    # An odd factor can be undone modulo 2**32: every change of a byte changes the sum.
    position = jnp.arange(data.size, dtype=jnp.uint32)
    factor = position * jnp.uint32(2654435761) | 1
    return (data * factor).sum(dtype=jnp.uint32)
