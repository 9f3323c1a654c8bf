"""Examples on the device of their client, if clients are pinned (`mesh.Grid`).

The pool lies in blocks, one for each device, with the examples of its clients, each
once. Offsets count through all blocks in order. Every process makes the blocks of its
own devices only. For example, four clients are on two devices, and clients 2 and 3
share their examples:

    client          0     1     2     3
    in the pool     4 5   0 1   2 3   2 3
    owner           0     0     1     1
    blocks          0 1 4 5           2 3 - -     the second one is filled up
    offset          2     0     4     4           in both blocks, of length 4

Every device has the offsets and sizes of all clients, two numbers each.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from pfljax.core.types import ClientData, Examples
from pfljax.engine import mesh
from pfljax.engine.mesh import Grid

Parts = dict[str, ClientData]  # of the same clients, over one pool


class Layout(NamedTuple):
    """The examples in the blocks, and the offset of each client."""

    rows: list[np.ndarray]  # indices into the pool, ascending, by device
    length: int  # of a block, the most examples of any device
    offset: dict[str, np.ndarray]  # i32[C] by part


def owners(devices: int, stack: np.ndarray) -> np.ndarray:
    """The device of each client, i64[C], which has its state.

    `stack` i[C] is the number of each client's stack.
    """
    owner = np.zeros(len(stack), np.int64)
    for number in np.unique(stack):
        members = np.flatnonzero(stack == number)
        block = -(-len(members) // devices)
        owner[members] = np.arange(len(members)) // block
    return owner


def layout(devices: int, parts: Parts, owner: np.ndarray) -> Layout:
    """The layout of the clients' examples; `owner` i[C] is the device of each client.

    Raises:
      ValueError: the blocks have more than 2**31 - 1 rows together.
    """
    spans = {name: _spans(part) for name, part in parts.items()}
    rows = []
    for device in range(devices):
        at_home = owner == device
        resident_spans = [span[at_home] for span in spans.values()]
        # Parts may share examples, as clients may: a device holds each of them once.
        resident_rows = [_rows(span) for span in resident_spans]
        rows.append(np.unique(np.concatenate(resident_rows)))
    length = max(1, *map(len, rows))
    if devices * length > np.iinfo(np.int32).max:
        raise ValueError(
            f"{devices} blocks of {length} rows are more than 2**31 - 1 rows; choose "
            "fewer devices, or pin_clients=False"
        )
    offset = {
        name: _offsets(span, owner, rows, length).astype(np.int32)
        for name, span in spans.items()
    }
    return Layout(rows=rows, length=length, offset=offset)


def _spans(part: ClientData) -> np.ndarray:
    """Offset and size of each client, [C, 2]."""
    offset = np.asarray(part.offset)
    size = np.asarray(part.size)
    return np.stack([offset, size], axis=1)


def _offsets(
    spans: np.ndarray,
    owner: np.ndarray,
    rows: list[np.ndarray],
    length: int,
) -> np.ndarray:
    """The offsets of spans [C, 2] in the blocks of their devices `owner`."""
    # A client without examples has the offset of its device's block.
    offset = owner * length
    has_rows = spans[:, 1] > 0
    for device, block in enumerate(rows):
        at_home = owner == device
        clients = np.flatnonzero(at_home & has_rows)
        # A client's examples are contiguous in the block as well, which is sorted.
        offset[clients] += np.searchsorted(block, spans[clients, 0])
    return offset


def _rows(spans: np.ndarray) -> np.ndarray:
    """The indices of spans [n, 2] of offset and size; equal spans count once."""
    offset, size = np.unique(spans, axis=0).T
    # Counted through all spans, and then moved to the offset of each one.
    first = np.cumsum(size) - size
    counted = np.arange(size.sum())
    return counted + np.repeat(offset - first, size)


def place(grid: Grid, parts: Parts, owner: np.ndarray) -> Parts:
    """The clients, with the examples of each on its device."""
    blocks = layout(grid.size, parts, owner)
    pool = next(iter(parts.values())).examples
    sharding = NamedSharding(grid.mesh, mesh.SPLIT)

    def in_blocks(leaf: Any) -> jax.Array:
        leaf = np.asarray(leaf)

        # It is called for the devices of this process only.
        def block_at(index: Any) -> np.ndarray:
            first_row = index[0].start or 0
            resident_rows = blocks.rows[first_row // blocks.length]
            block = np.zeros((blocks.length, *leaf.shape[1:]), leaf.dtype)
            block[: len(resident_rows)] = leaf[resident_rows]
            return block

        shape = grid.size * blocks.length, *leaf.shape[1:]
        return jax.make_array_from_callback(shape, sharding, block_at)

    # One pool for all parts, which may share examples.
    examples = Examples(x=in_blocks(pool.x), y=in_blocks(pool.y))
    spans = {name: (blocks.offset[name], part.size) for name, part in parts.items()}
    placed = mesh.place(grid, spans)
    return {name: ClientData(examples, *span) for name, span in placed.items()}


def abstract(grid: Grid, parts: Parts, owner: np.ndarray) -> Parts:
    """The shapes of the result of `place`; nothing is copied."""
    blocks = layout(grid.size, parts, owner)
    pool_length = grid.size * blocks.length

    def stack(count: int, leaf: Any) -> Any:
        shape = count, *leaf.shape[1:]
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    def abstract_part(name: str, part: ClientData) -> ClientData:
        examples = Examples(
            x=stack(pool_length, part.examples.x),
            y=stack(pool_length, part.examples.y),
        )
        return ClientData(
            examples=mesh.abstract(grid, examples, mesh.SPLIT),
            offset=mesh.abstract(grid, blocks.offset[name]),
            size=mesh.abstract(grid, part.size),
        )

    return {name: abstract_part(name, part) for name, part in parts.items()}


def distinct(grid: Grid | None, part: ClientData) -> tuple[ClientData, np.ndarray]:
    """(the distinct spans, the index of each client's span among them i[C]).

    If clients are pinned, each device has the same number of spans, in a block. For
    example, two devices with spans a, b and c give a, b, c and an empty one.
    """
    # A single number for each span, since sorting pairs is ten times as slow.
    spans = _spans(part).astype(np.int64)
    numbers = (spans[:, 0] << 32) + spans[:, 1]
    _, first, whose = np.unique(numbers, return_index=True, return_inverse=True)
    distinct_spans = spans[first]
    if grid is not None and grid.pin_clients:
        length = part.examples.y.shape[0] // grid.size
        distinct_spans, order = _by_device(grid.size, length, distinct_spans)
        whose = order[whose]
    # In NumPy, since each operation of JAX would be its own program.
    offset, size = distinct_spans.T.astype(np.int32)
    return part._replace(offset=offset, size=size), whose


def _by_device(
    devices: int,
    length: int,
    spans: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(as many spans [n, 2] of each device, the index of each given one, i[n]).

    Empty spans fill up; their offset is in the block of their device, of this `length`.
    """
    owner = spans[:, 0] // length  # ascending, as the offsets are
    first_of_home = np.searchsorted(owner, owner)
    rank = np.arange(len(spans)) - first_of_home  # on its device
    most = rank.max() + 1
    table = np.zeros((devices, most, 2), spans.dtype)
    table[..., 0] = length * np.arange(devices)[:, None]
    table[owner, rank] = spans
    return table.reshape(-1, 2), owner * most + rank
