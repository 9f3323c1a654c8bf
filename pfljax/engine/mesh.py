"""Clients over several devices: where arrays lie, and programs over all devices.

The devices form one axis, "clients". Client states lie in blocks: device d owns rows
d b .. (d + 1) b - 1. Server and keys lie on every device, so that training itself needs
no exchange. There are two ways to assign clients to devices (`engine.assignment`):

dealt   Each round deals its cohort anew, largest client first, to the least loaded
        device. All data lie on every device, and states travel to the device that
        trains them and back (`engine.transfer`).
pinned  The device that owns a client's state also has its examples, alone
        (`engine.placement`), and trains it. Only the sum of the uploads travels, but
        the load is only as even as the draw.

If the grid is None, each function is the plain one for a single device.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from pfljax.core.types import Array, RunState

AXIS = "clients"
SPLIT = PartitionSpec(AXIS)
WHOLE = PartitionSpec()


class Grid(NamedTuple):
    """The devices that share the clients."""

    mesh: Mesh
    pin_clients: bool = False  # to the device of their state; else cohorts are dealt

    @property
    def size(self) -> int:
        """D, the number of devices."""
        return self.mesh.size


def make(count: int | None = None, pin_clients: bool = False) -> Grid:
    """A grid of `count` devices, the first ones of each process; None for all.

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
    # As many of each process, since every process must own a part of each array.
    chosen = [
        device
        for process in range(processes)
        for device in jax.local_devices(process_index=process)[: count // processes]
    ]
    mesh = jax.make_mesh((count,), (AXIS,), (AxisType.Auto,), devices=chosen)
    return Grid(mesh, pin_clients)


def over(grid: Grid | None, f: Callable[..., Any], *specs: PartitionSpec) -> Any:
    """`f`, run by every device on its part of the arguments; all results are split."""
    if grid is None:
        return f
    return jax.shard_map(
        f,
        mesh=grid.mesh,
        in_specs=specs,
        out_specs=SPLIT,
        # It would refuse loops with a carry that starts the same on all devices.
        check_vma=False,
    )


def over_rows(
    grid: Grid | None,
    f: Callable[..., Any],
    same: Any,
    pools: Any,
    split: Any,
    count: int,
) -> Any:
    """The stacked results of f(same, pools, split), with `split` in equal blocks.

    `split` has `count` rows, or is already padded. `pools` are examples into which
    clients have offsets.
    """
    if grid is None:
        return f(same, pools, split)
    run = over(grid, f, WHOLE, data(grid), SPLIT)
    padded_results = run(same, pools, pad(grid, split, count))
    results = jax.tree.map(lambda leaf: leaf[:count], padded_results)
    # Whole, since a process can only read its own devices.
    return whole(grid, results)


def data(grid: Grid | None) -> PartitionSpec:
    """The partition of the examples."""
    return SPLIT if grid and grid.pin_clients else WHOLE


def inside(
    grid: Grid | None,
    rows: Array,
    block: Array,
) -> Array:
    """Indices into the examples of all devices, as indices into this device's `block`.

    They are unchanged if every device has all examples.
    """
    if grid is None or not grid.pin_clients:
        return rows
    first_row = block.shape[0] * jax.lax.axis_index(AXIS)
    return rows - first_row


def round_up(count: int, grid: Grid | None) -> int:
    """`count` rounded up to equal blocks."""
    if grid is None:
        return count
    block = -(-count // grid.size)
    return block * grid.size


def pad(
    grid: Grid | None,
    stacked: Any,
    count: int | None = None,
) -> Any:
    """`stacked`, padded to `round_up(count)` rows that repeat the last one."""
    if grid is None:
        return stacked

    def pad_leaf(leaf: Array) -> Array:
        length = leaf.shape[0]
        missing = round_up(count or length, grid) - length
        widths = [(0, missing)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, widths, "edge")

    return jax.tree.map(pad_leaf, stacked)


def blocks(
    devices: int,
    count: int,
    size: int,
) -> Iterator[np.ndarray]:
    """About `size` of `count` clients at a time, as many of each device, i64[n].

    Numbers may be repeated, or past the end.
    """
    per_device = -(-count // devices)
    at_once = max(1, size // devices)
    first_row = np.arange(devices)[:, None] * per_device
    for start in range(0, per_device, at_once):
        in_block = np.arange(start, start + at_once)
        # All of one length, since another length would be another program.
        in_block = np.minimum(in_block, per_device - 1)
        yield (first_row + in_block).ravel()


def whole(grid: Grid | None, value: Any) -> Any:
    """`value` held by every device, inside of a compiled program."""
    if grid is None:
        return value
    everywhere = NamedSharding(grid.mesh, WHOLE)
    return jax.lax.with_sharding_constraint(value, everywhere)


def place(grid: Grid | None, value: Any) -> Any:
    """`value` copied to every device."""
    if grid is None:
        return jax.device_put(value, jax.local_devices()[0])
    target = NamedSharding(grid.mesh, WHOLE)
    if jax.process_count() == 1:
        return jax.device_put(value, target)

    def place_leaf(leaf: Any) -> Array:
        # Every process has the value, so nothing is sent.
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, target, array.__getitem__)

    return jax.tree.map(place_leaf, value)


def abstract(
    grid: Grid | None,
    value: Any,
    spec: PartitionSpec = WHOLE,
) -> Any:
    """The shapes of `value` when it is placed so; nothing is copied."""
    # Also on one device, since rounds of unplaced data would be another program.
    target = sharding(grid, spec)

    def abstract_leaf(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=target)

    return jax.tree.map(abstract_leaf, value)


def shardings(grid: Grid | None, state: RunState) -> Any:
    """The shardings of a state: `clients` in blocks, all else on every device."""
    split = sharding(grid, SPLIT)
    everywhere = sharding(grid, WHOLE)
    clients = jax.tree.map(lambda leaf: split, state.clients)
    on_all = jax.tree.map(lambda leaf: everywhere, state)
    return on_all._replace(clients=clients)


def sharding(grid: Grid | None, spec: PartitionSpec) -> Any:
    """The sharding of an array, `SPLIT` in blocks or `WHOLE` on every device."""
    if grid is None:
        return jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return NamedSharding(grid.mesh, spec)
