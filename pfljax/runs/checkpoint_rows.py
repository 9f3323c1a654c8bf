"""The rows of client states in a checkpoint, fitted to other devices than it is of."""

from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.types import RunState
from pfljax.runs.checkpoint_meta import DamageError, Meta


def rows_of(state: RunState) -> int | None:
    """Rows of the client states; more than clients where devices share them."""
    leaves = jax.tree.leaves(state.clients)
    return leaves[0].shape[0] if leaves else None


def devices_of(state: RunState) -> int:
    """Devices that share the client states."""
    leaves = jax.tree.leaves(state.clients)
    return len(leaves[0].sharding.device_set) if leaves else 1


def as_saved(abstract: RunState, meta: Meta) -> RunState:
    """The same with the saved number of client rows, each device holding all of them.

    A run on another number of devices has its states padded to other equal blocks.
    """
    rows = meta.rows
    ours = rows_of(abstract)
    if rows is None or ours is None or rows == ours:
        return abstract
    if abs(rows - ours) >= max(meta.devices, devices_of(abstract)):
        raise DamageError(f"expected {ours} client states, got {rows}")
    # The rows of another number of devices do not divide among ours.
    everywhere = abstract.round.sharding

    def with_rows(leaf: Any) -> Any:
        shape = (rows, *leaf.shape[1:])
        return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=everywhere)

    return abstract._replace(clients=jax.tree.map(with_rows, abstract.clients))


def fitted(state: RunState, abstract: RunState) -> RunState:
    """The state with as many client rows as `abstract`; what is cut is padding."""

    def of_leaf(leaf: Any, wanted: Any) -> Any:
        rows = jnp.minimum(jnp.arange(wanted.shape[0]), leaf.shape[0] - 1)
        return jax.device_put(leaf[rows], wanted.sharding)

    if rows_of(state) == rows_of(abstract):
        return state
    return state._replace(
        clients=jax.tree.map(of_leaf, state.clients, abstract.clients)
    )
