"""Moves clients' states between the device that owns them and the one that trains them.

Device d owns rows d b .. (d + 1) b - 1 of the clients. Both functions run on every
device, inside of `mesh.over`, and leave bits unchanged.
"""

from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.types import Array
from pfljax.engine.mesh import AXIS, Grid, inside


def fetch(
    grid: Grid | None,
    block: Any,
    rows: Array,
    local_rows: Array,
) -> Any:
    """The states of the slots of this device, from the devices that own them.

    `block` has this device's rows, `rows` i32[D * Q] are the rows of the slots of all
    devices, and `local_rows` i32[Q] those of its own slots.

    For example, two devices own the clients 0 1 2 | 3 4 5, device 0 trains 1 and 5, and
    device 1 trains 2 and 3. Then `rows` is 1 5 2 3, and `local_rows` of device 0 is
    1 5. Each device sends a row for each slot of all others, and the slot takes that of
    the owner.
    """
    leaves = jax.tree.leaves(block)
    if not leaves:
        return block
    if grid is None or grid.pin_clients:
        return tree.take(block, inside(grid, local_rows, leaves[0]))
    size = leaves[0].shape[0]
    wanted = rows.reshape(grid.size, -1)
    # The row of an empty slot is past the end; it takes any, and does not use it.
    owner = jnp.minimum(local_rows // size, grid.size - 1)
    slots = jnp.arange(wanted.shape[1])

    def fetch_leaf(leaf: Array) -> Array:
        offered = jnp.take(leaf, wanted % size, axis=0)
        received = jax.lax.all_to_all(offered, AXIS, 0, 0)  # [D, Q, ...], by owner
        return received[owner, slots]

    return jax.tree.map(fetch_leaf, block)


def store(
    grid: Grid | None,
    block: Any,
    rows: Array,
    local_rows: Array,
    new: Any,
) -> Any:
    """`block` with the `new` states of all slots that it owns; others are dropped.

    `rows` and `local_rows` are those of `fetch`, or past the end to write nothing.
    If clients are not pinned, every device gets all new states, and keeps its own.
    """
    leaves = jax.tree.leaves(block)
    if grid is None or not leaves:
        return tree.put(block, local_rows, new)
    size = leaves[0].shape[0]
    written_rows = local_rows
    if not grid.pin_clients:
        written_rows = rows
        new = jax.tree.map(_gather_devices, new)
    row = written_rows - size * jax.lax.axis_index(AXIS)
    # A negative number would count from the end, so other rows are put past the end.
    in_block = (row >= 0) & (row < size)
    row = jnp.where(in_block, row, size)
    return tree.put(block, row, new)


def _gather_devices(leaf: Array) -> Array:
    """The slots of all devices, [D * Q, ...], on each of them."""
    return jax.lax.all_gather(leaf, AXIS, tiled=True)
