"""Assigns the clients of a cohort to devices.

A slot has a position in the cohort, or M, one past its end, if it is empty.
"""

from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.types import Array
from pfljax.engine.mesh import Grid, round_up


def assign(
    grid: Grid,
    rows: Array,
    steps: Array,
    draws: Array,
    stacked: int,
) -> Array:
    """The positions in the cohort by slot, i32[D * Q], M for an empty slot.

    Empty slots of a device come last. `rows` are those of the cohort in its stack of
    `stacked` clients; `draws` are 0 for an empty place, and for the second place of a
    client.
    """
    if grid.pin_clients:
        block = round_up(stacked, grid) // grid.size
        return assign_to_owners(rows, draws > 0, grid.size, block)
    return balance(steps, grid.size)


def assign_to_owners(
    rows: Array,
    counts: Array,
    devices: int,
    block: int,
) -> Array:
    """Assigns each client that `counts` to the device that owns its block of rows.

    Q = min(M, block), since all of a cohort may belong to one device.
    """
    cohort = rows.shape[0]
    owner = rows // block
    device = jnp.arange(devices)[:, None]
    at_device = (owner == device) & counts
    slots = jnp.where(at_device, jnp.arange(cohort), cohort)
    # Sorted, the empty slots come last, and chunks of empty slots are left out.
    return jnp.sort(slots, axis=1)[:, : min(cohort, block)].ravel()


def balance(steps: Array, devices: int) -> Array:
    """Assigns the largest clients first, each to the least loaded device with room.

    Q = min(M, ceil(2 M / D)).
    """
    count = steps.shape[0]
    # Twice the even share: a device of small clients takes more of them.
    room = min(count, -(-2 * count // devices))
    order = jnp.argsort(-steps, stable=True)
    endless = jnp.iinfo(jnp.int32).max

    def place(index: Array, carry: Any) -> Any:
        slots, load, taken = carry
        member = order[index]
        has_room = taken < room
        load_if_room = jnp.where(has_room, load, endless)
        device = jnp.argmin(load_if_room)
        slot = taken[device]
        slots = slots.at[device, slot].set(member)
        # One more than its steps, since a client without steps also takes a slot.
        load = load.at[device].add(steps[member] + 1)
        taken = taken.at[device].add(1)
        return slots, load, taken

    empty = jnp.full((devices, room), count, jnp.int32)
    zero = jnp.zeros(devices, jnp.int32)
    start = empty, zero, zero
    slots, _, _ = jax.lax.fori_loop(0, count, place, start)
    return slots.ravel()
