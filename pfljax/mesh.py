"""Clients over several devices: who trains whom, and how states travel.

A mesh has one axis, "clients". Client states lie in blocks: device d owns rows
d b .. (d + 1) b - 1. A round deals its cohort anew, largest client first to the least
loaded device; states travel to whoever trains them and back. Data, server and keys
lie on every device, so training itself needs no exchange. Without a mesh (None) each
function is the plain one of a single device.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from pfljax import tree
from pfljax.types import Array, RunState

AXIS = "clients"
SPLIT, WHOLE = PartitionSpec(AXIS), PartitionSpec()


def make(count: int | None = None) -> Mesh:
    """A mesh over `count` devices, None for all: the first ones of each process.

    Raises:
      ValueError: there are fewer devices.
    """
    found, processes = jax.devices(), jax.process_count()
    count = len(found) if count is None else count
    if not 1 <= count <= len(found):
        raise ValueError(
            f"devices is {count}, but JAX has {len(found)} ({found[0].platform}); "
            f"choose 1 <= devices <= {len(found)}"
        )
    chosen = [
        device
        for process in range(processes)
        for device in jax.local_devices(process_index=process)[: count // processes]
    ]
    return jax.make_mesh((count,), (AXIS,), (AxisType.Auto,), devices=chosen)


def deal(steps: Array, devices: int) -> Array:
    """Who trains where: places in the cohort, i32[D * Q], M for an empty slot.

    Largest first to the least loaded device that has room; Q = min(M, ceil(2 M / D)).
    """
    count = steps.shape[0]
    room = min(count, -(-2 * count // devices))
    order = jnp.argsort(-steps, stable=True)

    def give(index: Array, carry: Any) -> Any:
        slots, load, taken = carry
        place = order[index]
        device = jnp.argmin(jnp.where(taken < room, load, jnp.iinfo(jnp.int32).max))
        slots = slots.at[device, taken[device]].set(place)
        load = load.at[device].add(steps[place] + 1)
        return slots, load, taken.at[device].add(1)

    zero = jnp.zeros(devices, jnp.int32)
    start = jnp.full((devices, room), count, jnp.int32), zero, zero
    return jax.lax.fori_loop(0, count, give, start)[0].ravel()


def over(mesh: Mesh | None, f: Callable[..., Any], *specs: PartitionSpec) -> Any:
    """`f` run by every device on its part of the arguments; all results are split."""
    if mesh is None:
        return f
    return jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=SPLIT, check_vma=False)


def over_rows(
    mesh: Mesh | None, f: Callable[..., Any], same: Any, split: Any, count: int
) -> Any:
    """f(same, split) with the `count` rows of `split` dealt in blocks; stacked results.

    `split` may already be padded to equal blocks.
    """
    if mesh is None:
        return f(same, split)
    found = over(mesh, f, WHOLE, SPLIT)(same, pad(mesh, split, count))
    return whole(mesh, jax.tree.map(lambda leaf: leaf[:count], found))


def fetch(mesh: Mesh | None, block: Any, rows: Array) -> Any:
    """The states of the slots of this device, from whichever device owns them.

    `block` holds this device's rows, `rows` i32[D * Q] the rows of everybody's slots.
    Bits travel unchanged.
    """
    if mesh is None:
        return tree.take(block, rows)
    if not jax.tree.leaves(block):
        return block
    size, devices = _rows(block), mesh.size
    wanted = rows.reshape(devices, -1)
    owner = jnp.minimum(wanted[jax.lax.axis_index(AXIS)] // size, devices - 1)
    slots = jnp.arange(wanted.shape[1])

    def of_leaf(leaf: Array) -> Array:
        offered = jnp.take(leaf, wanted % size, axis=0)
        return jax.lax.all_to_all(offered, AXIS, 0, 0)[owner, slots]

    return jax.tree.map(of_leaf, block)


def store(mesh: Mesh | None, block: Any, rows: Array, new: Any) -> Any:
    """`block` with the `new` states of all slots that it owns; others are dropped."""
    if mesh is None:
        return tree.put(block, rows, new)
    if not jax.tree.leaves(block):
        return block
    size = _rows(block)
    place = rows - size * jax.lax.axis_index(AXIS)
    place = jnp.where((place >= 0) & (place < size), place, size)
    gathered = jax.tree.map(
        lambda leaf: jax.lax.all_gather(leaf, AXIS, tiled=True), new
    )
    return tree.put(block, place, gathered)


def _rows(block: Any) -> int:
    return jax.tree.leaves(block)[0].shape[0]


def padded(count: int, mesh: Mesh | None) -> int:
    """`count` rounded up to equal blocks."""
    return count if mesh is None else -(-count // mesh.size) * mesh.size


def pad(mesh: Mesh | None, stacked: Any, count: int | None = None) -> Any:
    """Rows of the leading axis up to `padded(count)`; new ones repeat the last."""

    def of_leaf(leaf: Array) -> Array:
        more = padded(count or leaf.shape[0], mesh) - leaf.shape[0]
        return jnp.pad(leaf, ((0, more), *((0, 0),) * (leaf.ndim - 1)), "edge")

    return jax.tree.map(of_leaf, stacked) if mesh is not None else stacked


def whole(mesh: Mesh | None, value: Any) -> Any:
    """`value` held by every device, inside of a compiled program."""
    if mesh is None:
        return value
    return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, WHOLE))


def place(mesh: Mesh | None, value: Any) -> Any:
    """`value` copied to every device."""
    if mesh is None:
        return jax.device_put(value, jax.local_devices()[0])
    target = NamedSharding(mesh, WHOLE)
    if jax.process_count() == 1:
        return jax.device_put(value, target)

    def of_leaf(leaf: Any) -> Array:
        own = np.asarray(leaf)  # every process has it: nothing is sent
        return jax.make_array_from_callback(own.shape, target, own.__getitem__)

    return jax.tree.map(of_leaf, value)


def abstract(mesh: Mesh | None, value: Any) -> Any:
    """What `place` would give, as shapes: nothing is copied."""
    if mesh is None:
        return value
    where = NamedSharding(mesh, WHOLE)
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        value,
    )


def shardings(mesh: Mesh | None, state: RunState) -> Any:
    """Where a state's leaves lie: `clients` in blocks, all else on every device."""
    if mesh is None:
        here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        return jax.tree.map(lambda leaf: here, state)
    split = functools.partial(jax.tree.map, lambda leaf: NamedSharding(mesh, SPLIT))
    everywhere = jax.tree.map(lambda leaf: NamedSharding(mesh, WHOLE), state)
    return everywhere._replace(clients=split(state.clients))
