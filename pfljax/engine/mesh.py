"""Clients over several devices: what lies where, and programs over all of them.

The devices form one axis, "clients". Client states lie in blocks: device d owns rows
d b .. (d + 1) b - 1. Server and keys lie on every device, so training itself needs no
exchange. Who trains whom (`engine.assignment`) is a choice:

dealt  A round deals its cohort anew, largest client first to the least loaded device.
       All data lie on every device; states travel to whoever trains them and back
       (`engine.transfer`).
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


def over(grid: Grid | None, f: Callable[..., Any], *specs: PartitionSpec) -> Any:
    """`f` run by every device on its part of the arguments; all results are split."""
    if grid is None:
        return f
    return jax.shard_map(
        f,
        mesh=grid.mesh,
        in_specs=specs,
        out_specs=SPLIT,
        # It would refuse loops whose carry starts the same on all devices.
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
    """f(same, pools, split) with the `count` rows of `split` dealt in blocks; stacked
    results.

    `pools` are rows that clients have offsets into. `split` may already be padded to
    equal blocks.
    """
    if grid is None:
        return f(same, pools, split)
    run = over(grid, f, WHOLE, data(grid), SPLIT)
    padded_results = run(same, pools, pad(grid, split, count))
    results = jax.tree.map(lambda leaf: leaf[:count], padded_results)
    # Whole, for a process can read its own devices only.
    return whole(grid, results)


def data(grid: Grid | None) -> PartitionSpec:
    """How rows lie."""
    return SPLIT if grid and grid.homes else WHOLE


def inside(
    grid: Grid | None,
    rows: Array,
    block: Array,
) -> Array:
    """Numbers of rows among those of all devices as numbers in this device's `block`.

    Unchanged where every device has all rows.
    """
    if grid is None or not grid.homes:
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
    """Rows of the leading axis up to `padded(count)`; new ones repeat the last."""
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
    """`count` clients about `size` at a time, as many of each device's block, i64[n].

    Numbers may come twice, and be past the end: nobody's.
    """
    per_device = -(-count // devices)
    at_once = max(1, size // devices)
    first_row = np.arange(devices)[:, None] * per_device
    for start in range(0, per_device, at_once):
        in_block = np.arange(start, start + at_once)
        # All of one length: another would be another program.
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
        # Every process has it: nothing is sent.
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, target, array.__getitem__)

    return jax.tree.map(place_leaf, value)


def abstract(
    grid: Grid | None,
    value: Any,
    spec: PartitionSpec = WHOLE,
) -> Any:
    """`value` so placed, as shapes: nothing is copied."""
    # On one device, too: rounds of rows that lie nowhere would be another program.
    target = sharding(grid, spec)

    def abstract_leaf(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=target)

    return jax.tree.map(abstract_leaf, value)


def shardings(grid: Grid | None, state: RunState) -> Any:
    """Where a state's leaves lie: `clients` in blocks, all else on every device."""
    split = sharding(grid, SPLIT)
    everywhere = sharding(grid, WHOLE)
    clients = jax.tree.map(lambda leaf: split, state.clients)
    on_all = jax.tree.map(lambda leaf: everywhere, state)
    return on_all._replace(clients=clients)


def sharding(grid: Grid | None, spec: PartitionSpec) -> Any:
    """Where an array lies that is `SPLIT` in blocks or `WHOLE` on every device."""
    if grid is None:
        return jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return NamedSharding(grid.mesh, spec)
