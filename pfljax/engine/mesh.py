"""Clients over several devices: who trains whom, and how states travel.

The devices form one axis, "clients". Client states lie in blocks: device d owns rows
d b .. (d + 1) b - 1. Server and keys lie on every device, so training itself needs no
exchange. Who trains whom is a choice:

dealt  A round deals its cohort anew, largest client first to the least loaded device.
       All data lie on every device; states travel to whoever trains them and back.
homes  Who owns a client's state has its rows as well, alone (`engine.placement`), and
       trains it. Only the sum of the uploads travels; the load is as even as the draw.

Without devices to share among (None) each function is the plain one of a single device.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from pfljax.core import tree
from pfljax.core.types import Array, RunState

AXIS = "clients"
SPLIT = PartitionSpec(AXIS)
WHOLE = PartitionSpec()


class Grid(NamedTuple):
    """The devices that share the clients."""

    mesh: Mesh
    homes: bool = False  # else each cohort is dealt anew

    @property
    def size(self) -> int:
        """D, the number of devices."""
        return self.mesh.size


def make(count: int | None = None, homes: bool = False) -> Grid:
    """`count` devices, None for all: the first ones of each process.

    Raises:
      ValueError: there are fewer devices.
    """
    devices = jax.devices()
    processes = jax.process_count()
    count = len(devices) if count is None else count
    if not 1 <= count <= len(devices):
        raise ValueError(
            f"devices is {count}, but JAX has {len(devices)} ({devices[0].platform}); "
            f"choose 1 <= devices <= {len(devices)}"
        )
    # As many of each process: every process must own a part of each array.
    chosen = [
        device
        for process in range(processes)
        for device in jax.local_devices(process_index=process)[: count // processes]
    ]
    mesh = jax.make_mesh((count,), (AXIS,), (AxisType.Auto,), devices=chosen)
    return Grid(mesh, homes)


def deal(grid: Grid, ids: Array, steps: Array, num_clients: int) -> Array:
    """Who trains where: positions in the cohort, i32[D * Q], M for an empty slot.

    Empty slots of a device come behind its others.
    """
    if grid.homes:
        return at_home(ids, grid.size, padded(num_clients, grid) // grid.size)
    return evenly(steps, grid.size)


def at_home(ids: Array, devices: int, block: int) -> Array:
    """Each client where its state is; Q = M, for all may be of one device."""
    count = ids.shape[0]
    home = jnp.minimum(ids // block, devices - 1)
    at_device = home == jnp.arange(devices)[:, None]
    slots = jnp.where(at_device, jnp.arange(count), count)
    # Sorted, the empty slots come last: chunks of nothing but them are left out.
    return jnp.sort(slots, axis=1).ravel()


def evenly(steps: Array, devices: int) -> Array:
    """The largest first to the least loaded device that has room.

    Q = min(M, ceil(2 M / D)).
    """
    count = steps.shape[0]
    room = min(count, -(-2 * count // devices))
    order = jnp.argsort(-steps, stable=True)

    def assign(index: Array, carry: Any) -> Any:
        slots, load, taken = carry
        member = order[index]
        load_if_room = jnp.where(taken < room, load, jnp.iinfo(jnp.int32).max)
        device = jnp.argmin(load_if_room)
        slots = slots.at[device, taken[device]].set(member)
        # One more than its steps: a client without steps takes a slot as well.
        load = load.at[device].add(steps[member] + 1)
        taken = taken.at[device].add(1)
        return slots, load, taken

    empty = jnp.full((devices, room), count, jnp.int32)
    zero = jnp.zeros(devices, jnp.int32)
    slots, _, _ = jax.lax.fori_loop(0, count, assign, (empty, zero, zero))
    return slots.ravel()


def over(grid: Grid | None, f: Callable[..., Any], *specs: PartitionSpec) -> Any:
    """`f` run by every device on its part of the arguments; all results are split."""
    if grid is None:
        return f
    # check_vma would refuse loops whose carry starts the same on all devices.
    return jax.shard_map(
        f, mesh=grid.mesh, in_specs=specs, out_specs=SPLIT, check_vma=False
    )


def over_rows(
    grid: Grid | None, f: Callable[..., Any], same: Any, pools: Any, split: Any,
    count: int,
) -> Any:  # fmt: skip
    """f(same, pools, split) with the `count` rows of `split` dealt in blocks; stacked
    results.

    `pools` are rows that clients have offsets into. `split` may already be padded to
    equal blocks.
    """
    if grid is None:
        return f(same, pools, split)
    run = over(grid, f, WHOLE, data(grid), SPLIT)
    results = run(same, pools, pad(grid, split, count))
    return whole(grid, jax.tree.map(lambda leaf: leaf[:count], results))


def data(grid: Grid | None) -> PartitionSpec:
    """How rows and offsets lie."""
    return SPLIT if grid and grid.homes else WHOLE


def inside(grid: Grid | None, rows: Array, block: Array) -> Array:
    """Numbers of rows among those of all devices as numbers in this device's `block`.

    Unchanged where every device has all rows.
    """
    if grid is None or not grid.homes:
        return rows
    return rows - block.shape[0] * jax.lax.axis_index(AXIS)


def fetch(grid: Grid | None, block: Any, rows: Array, local_rows: Array) -> Any:
    """The states of the slots of this device, from whichever device owns them.

    `block` holds this device's rows, `rows` i32[D * Q] the rows of everybody's slots,
    `local_rows` i32[Q] those of its own slots. Bits travel unchanged.

    Dealt, of 2 devices with clients 0 1 2 | 3 4 5, where device 0 trains 1 and 5, and
    device 1 trains 2 and 3: `rows` is 1 5 2 3, `local_rows` of device 0 is 1 5. Each
    device offers a row for each slot of all others, the right one where it owns it.
    """
    leaves = jax.tree.leaves(block)
    if not leaves:
        return block
    if grid is None or grid.homes:
        return tree.take(block, inside(grid, local_rows, leaves[0]))
    size = leaves[0].shape[0]
    wanted = rows.reshape(grid.size, -1)
    # The row of an empty slot is past the end; it takes any, and reads none of it.
    owner = jnp.minimum(local_rows // size, grid.size - 1)
    slots = jnp.arange(wanted.shape[1])

    def of_leaf(leaf: Array) -> Array:
        offered = jnp.take(leaf, wanted % size, axis=0)
        return jax.lax.all_to_all(offered, AXIS, 0, 0)[owner, slots]

    return jax.tree.map(of_leaf, block)


def store(
    grid: Grid | None, block: Any, rows: Array, local_rows: Array, new: Any
) -> Any:
    """`block` with the `new` states of all slots that it owns; others are dropped.

    `rows` and `local_rows` as in `fetch`, past the end for who is not to be written.
    Dealt, everybody gets all new states, and keeps those of its block.
    """
    leaves = jax.tree.leaves(block)
    if grid is None or not leaves:
        return tree.put(block, local_rows, new)
    size = leaves[0].shape[0]
    written = local_rows
    if not grid.homes:
        written = rows
        new = jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, AXIS, tiled=True), new)
    row = written - size * jax.lax.axis_index(AXIS)
    # A negative number would count from the end: another's row is put past the end.
    row = jnp.where((row >= 0) & (row < size), row, size)
    return tree.put(block, row, new)


def padded(count: int, grid: Grid | None) -> int:
    """`count` rounded up to equal blocks."""
    return count if grid is None else -(-count // grid.size) * grid.size


def pad(grid: Grid | None, stacked: Any, count: int | None = None) -> Any:
    """Rows of the leading axis up to `padded(count)`; new ones repeat the last."""

    if grid is None:
        return stacked

    def of_leaf(leaf: Array) -> Array:
        more = padded(count or leaf.shape[0], grid) - leaf.shape[0]
        widths = [(0, more)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, widths, "edge")

    return jax.tree.map(of_leaf, stacked)


def blocks(devices: int, count: int, size: int) -> Iterator[np.ndarray]:
    """`count` clients about `size` at a time, as many of each device's block, i64[n].

    Numbers may come twice, and be past the end: nobody's.
    """
    per_device = -(-count // devices)
    at_once = max(1, size // devices)
    first = np.arange(devices)[:, None] * per_device
    for start in range(0, per_device, at_once):
        # All of one length: another would be another program.
        chosen = np.minimum(np.arange(start, start + at_once), per_device - 1)
        yield (first + chosen).ravel()


def whole(grid: Grid | None, value: Any) -> Any:
    """`value` held by every device, inside of a compiled program."""
    if grid is None:
        return value
    return jax.lax.with_sharding_constraint(value, NamedSharding(grid.mesh, WHOLE))


def place(grid: Grid | None, value: Any) -> Any:
    """`value` copied to every device."""
    if grid is None:
        return jax.device_put(value, jax.local_devices()[0])
    target = NamedSharding(grid.mesh, WHOLE)
    if jax.process_count() == 1:
        return jax.device_put(value, target)

    def of_leaf(leaf: Any) -> Array:
        # Every process has it: nothing is sent.
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, target, array.__getitem__)

    return jax.tree.map(of_leaf, value)


def abstract(grid: Grid | None, value: Any, spec: PartitionSpec = WHOLE) -> Any:
    """`value` so placed, as shapes: nothing is copied."""
    if grid is None:
        return value
    sharding = NamedSharding(grid.mesh, spec)
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        value,
    )


def shardings(grid: Grid | None, state: RunState) -> Any:
    """Where a state's leaves lie: `clients` in blocks, all else on every device."""
    split = sharding(grid, SPLIT)
    everywhere = sharding(grid, WHOLE)
    on_all = jax.tree.map(lambda leaf: everywhere, state)
    return on_all._replace(clients=jax.tree.map(lambda leaf: split, state.clients))


def sharding(grid: Grid | None, spec: PartitionSpec) -> Any:
    """Where an array lies that is `SPLIT` in blocks or `WHOLE` on every device."""
    if grid is None:
        return jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return NamedSharding(grid.mesh, spec)
