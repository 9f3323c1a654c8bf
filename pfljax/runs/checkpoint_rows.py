"""The rows of client states in a checkpoint, fitted to other devices than it is of."""

from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.types import RunState
from pfljax.runs.checkpoint_meta import DamageError, Meta, Rows


def rows_of(state: RunState) -> Rows:
    """Rows of the client states; more than clients where devices share them.

    Of several architectures, of every leaf, for each has as many as it has clients.
    """
    rows = _by_leaf(state)
    if not rows:
        return None
    return rows[0] if len(set(rows)) == 1 else rows


def _by_leaf(state: RunState) -> list[int]:
    return [leaf.shape[0] for leaf in jax.tree.leaves(state.clients)]


def devices_of(state: RunState) -> int:
    """Devices that share the client states."""
    leaves = jax.tree.leaves(state.clients)
    return len(leaves[0].sharding.device_set) if leaves else 1


def as_saved(abstract: RunState, meta: Meta) -> RunState:
    """The same with the saved number of client rows, each device holding all of them.

    A run on another number of devices has its states padded to other equal blocks.
    """
    if meta.rows is None or meta.rows == rows_of(abstract):
        return abstract
    ours = _by_leaf(abstract)
    saved = meta.rows if isinstance(meta.rows, list) else [meta.rows] * len(ours)
    padding = max(meta.devices, devices_of(abstract))
    if len(saved) != len(ours):
        raise DamageError(f"expected {len(ours)} arrays of states, got {len(saved)}")
    for have, want in zip(saved, ours, strict=True):
        if abs(have - want) >= padding:
            raise DamageError(f"expected {want} client states, got {have}")
    # The rows of another number of devices do not divide among ours.
    everywhere = abstract.round.sharding

    def with_rows(leaf: Any, rows: int) -> Any:
        shape = (rows, *leaf.shape[1:])
        return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=everywhere)

    leaves, structure = jax.tree.flatten(abstract.clients)
    resized = map(with_rows, leaves, saved)
    return abstract._replace(clients=jax.tree.unflatten(structure, resized))


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
