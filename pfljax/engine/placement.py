"""Rows on the one device that their client is at home on (`mesh.Grid.homes`).

The pool lies in blocks, one a device: the rows of that device's clients, each row once.
Offsets count in all blocks, one behind the other. Every process makes the blocks of its
own devices only.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from pfljax.core.types import ClientData, Examples
from pfljax.engine import mesh
from pfljax.engine.mesh import Grid

Parts = dict[str, ClientData]  # of the same clients, over one pool


class Layout(NamedTuple):
    """Which rows lie where."""

    rows: list[np.ndarray]  # of the pool, ascending, by device
    length: int  # rows of a block: the most of any device
    offset: dict[str, np.ndarray]  # i32[C padded] by part


def layout(devices: int, parts: Parts) -> Layout:
    """Which rows of the clients lie where.

    Raises:
      ValueError: the blocks have more than 2**31 - 1 rows together.
    """
    spans = {
        name: np.stack([np.asarray(part.offset), np.asarray(part.size)], axis=1)
        for name, part in parts.items()
    }
    count = len(next(iter(spans.values())))
    home = np.repeat(np.arange(devices), -(-count // devices))
    own = [home[:count] == device for device in range(devices)]
    rows = [
        np.unique(np.concatenate([_rows(span[here]) for span in spans.values()]))
        for here in own
    ]
    length = max(1, *map(len, rows))
    if devices * length > np.iinfo(np.int32).max:
        raise ValueError(
            f"{devices} blocks of {length} rows are more than 2**31 - 1 rows; choose "
            "fewer devices, or homes=False"
        )
    offset = {}
    for name, span in spans.items():
        at = home * length  # of nobody, and of who has no rows
        for here, held in zip(own, rows, strict=True):
            some = np.flatnonzero(here & (span[:, 1] > 0))
            at[some] += np.searchsorted(held, span[some, 0])
        offset[name] = at.astype(np.int32)
    return Layout(rows, length, offset)


def _rows(spans: np.ndarray) -> np.ndarray:
    """The rows of spans [n, 2], offset and size; a span that comes twice is one."""
    offset, size = np.unique(spans, axis=0).T
    first = np.cumsum(size) - size
    return np.arange(size.sum()) + np.repeat(offset - first, size)


def place(grid: Grid, parts: Parts) -> Parts:
    """The clients with each device's rows and offsets on that device."""
    found, pool = layout(grid.size, parts), next(iter(parts.values())).examples
    where = NamedSharding(grid.mesh, mesh.SPLIT)

    def blocks(leaf: Any) -> jax.Array:
        def block(index: Any) -> np.ndarray:
            own = found.rows[(index[0].start or 0) // found.length]
            made = np.zeros((found.length, *leaf.shape[1:]), leaf.dtype)
            made[: len(own)] = leaf[own]
            return made

        shape = grid.size * found.length, *leaf.shape[1:]
        return jax.make_array_from_callback(shape, where, block)

    def split(offset: Any) -> jax.Array:
        return jax.make_array_from_callback(offset.shape, where, offset.__getitem__)

    examples = Examples(*(blocks(np.asarray(leaf)) for leaf in pool))
    sizes = mesh.place(grid, {name: part.size for name, part in parts.items()})
    return {
        name: ClientData(examples, split(found.offset[name]), size)
        for name, size in sizes.items()
    }


def abstract(grid: Grid, parts: Parts) -> Parts:
    """What `place` would give, as shapes: nothing is copied."""
    found = layout(grid.size, parts)

    def stacked(rows: int, leaf: Any) -> Any:
        return jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype)

    def of_part(name: str, part: ClientData) -> ClientData:
        pool = (stacked(grid.size * found.length, leaf) for leaf in part.examples)
        at = stacked(len(found.offset[name]), part.offset)
        examples, at = mesh.abstract(grid, (Examples(*pool), at), mesh.SPLIT)
        return ClientData(examples, at, mesh.abstract(grid, part.size))

    return {name: of_part(name, part) for name, part in parts.items()}


def different(grid: Grid | None, part: ClientData) -> tuple[ClientData, np.ndarray]:
    """(spans without repeats, which of them is whose, i[C]).

    Where homes are, each device has as many, its own, in a block: two devices with
    spans a, b and c give a, b, c and an empty one. Offsets come from all processes.
    """
    size = np.asarray(part.size)
    offset = _whole(part.offset)[: len(size)]
    spans = np.stack([offset, size], axis=1)
    found, whose = np.unique(spans, axis=0, return_inverse=True)
    whose = whose.ravel()
    if grid is not None and grid.homes:
        length = part.examples.y.shape[0] // grid.size
        home = found[:, 0] // length  # ascending
        rank = np.arange(len(found)) - np.searchsorted(home, home)  # on its device
        table = np.zeros((grid.size, rank.max() + 1, 2), found.dtype)
        table[..., 0] = length * np.arange(grid.size)[:, None]
        table[home, rank] = found
        whose = (home * table.shape[1] + rank)[whose]
        found = table.reshape(-1, 2)
    offset, size = jnp.asarray(found.T)
    return part._replace(offset=offset, size=size), whose


def _whole(value: Any) -> np.ndarray:
    """The array on the host, of all processes' devices."""
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        from jax.experimental.multihost_utils import process_allgather

        return np.asarray(process_allgather(value, tiled=True))
    return np.asarray(value)
