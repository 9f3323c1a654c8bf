"""Brings client states to the devices that train them, and the new states back.

Each device owns an equal block of the stacked clients: with b clients in a block,
device d owns the rows d b to (d + 1) b - 1. Unless clients are pinned, any device may
train any client. `fetch` takes the block of a device and returns the states that it
trains; `store` takes their new states and returns the new block. Every device calls
both within `mesh.over`. States are only copied, so that their bits stay the same.
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
    all_rows: Array,
    own_rows: Array,
) -> Any:
    """Returns the states that this device trains, [Q, ...].

    For example, two devices own the clients 0 1 2 | 3 4 5. Device 0 trains 1 and 5, and
    device 1 trains 2 and 3. Then `all_rows` is 1 5 2 3, and `own_rows` is 1 5 on device
    0. Each device offers a row of its block for each slot of every device, and each
    slot keeps the row that the owner of its client offers.

    Args:
      grid: the devices, or None for one.
      block: the states that this device owns, [b, ...].
      all_rows: i32[D * Q], the client rows that all devices train, by slot.
      own_rows: i32[Q], the client rows that this device trains.
    """
    leaves = jax.tree.leaves(block)
    if not leaves:
        return block
    if grid is None or grid.pin_clients:
        return tree.take(block, inside(grid, own_rows, leaves[0]))
    size = leaves[0].shape[0]
    offered_rows = all_rows.reshape(grid.size, -1) % size
    # The row of an empty slot is past the end: it gets some state, which is not used.
    owner = jnp.minimum(own_rows // size, grid.size - 1)
    slots = jnp.arange(own_rows.shape[0])

    def fetch_leaf(leaf: Array) -> Array:
        offered = jnp.take(leaf, offered_rows, axis=0)
        received = jax.lax.all_to_all(offered, AXIS, 0, 0)  # [D, Q, ...], by owner
        return received[owner, slots]

    return jax.tree.map(fetch_leaf, block)


def store(
    grid: Grid | None,
    block: Any,
    all_rows: Array,
    own_rows: Array,
    new: Any,
) -> Any:
    """Returns the block of this device with the new states of its clients, [b, ...].

    The arguments are those of `fetch`, and `new` are the states after the training,
    [Q, ...]. A row past the end is not written. Unless clients are pinned, every device
    receives the new states of all devices and keeps those of its own clients.
    """
    leaves = jax.tree.leaves(block)
    if grid is None or not leaves:
        return tree.put(block, own_rows, new)
    rows = own_rows
    if not grid.pin_clients:
        rows = all_rows
        new = jax.lax.all_gather(new, AXIS, tiled=True)
    size = leaves[0].shape[0]
    index = rows - size * jax.lax.axis_index(AXIS)
    # A negative index would count from the end, so those outside go past the end.
    is_inside = (index >= 0) & (index < size)
    return tree.put(block, jnp.where(is_inside, index, size), new)
