"""Units of layers: their reordering, and rows of their parameters.

The row of a unit has its incoming weights, and its bias last.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.types import Array, Params
from pfljax.core.units import Path, Units, split_axis

# A position past the end, for no unit.
NOBODY = jnp.iinfo(jnp.int32).max


def rearrange(params: Params, units: Units, index: Array) -> Params:
    """The parameters whose unit i of a layer is unit `index[i]`; zeros past the end.

    The result has as many units as `index` i32[L] has entries.
    """

    def on_leaf(path: Path, leaf: Array) -> Array:
        for axis in units.axes:
            if axis.path == path:
                pixels = axis.shape[axis.axis] // units.size
                leaf = _take(leaf, axis.axis, pixels, index)
        return leaf

    return _by_path(on_leaf, params)


def _take(leaf: Array, axis: int, pixels: int, index: Array) -> Array:
    """The parameter with these units of an axis [pixels * units]."""
    apart = split_axis(leaf, axis, leaf.shape[axis] // pixels)
    taken = jnp.take(apart, index, axis + 1, mode="fill", fill_value=0)
    after = leaf.shape[axis + 1 :]
    return taken.reshape(*leaf.shape[:axis], -1, *after)


def positions(assignment: Array, count: int) -> Array:
    """The unit at each of `count` positions, for units at `assignment` i32[d]."""
    numbers = jnp.arange(len(assignment))
    return jnp.full(count, NOBODY).at[assignment].set(numbers)


def at_first(units: Units, num_clients: int) -> Array:
    """The positions of all clients' units if they are the first ones, i32[C, d]."""
    return jnp.tile(jnp.arange(units.size), (num_clients, 1))


def unit_rows(params: Params, units: Units) -> Array:
    """A row for each unit: its incoming weights, and its bias last."""
    leaves = {}

    def note(path: Path, leaf: Array) -> None:
        leaves[path] = leaf

    _by_path(note, params)
    rows = []
    for path, axis, _ in units.outputs:
        first = jnp.moveaxis(leaves[path], axis, 0)
        rows.append(first.reshape(len(first), -1))
    return jnp.concatenate(rows, 1)


def with_rows(params: Params, units: Units, rows: Array) -> Params:
    """The parameters with `rows` as the rows of these units."""
    ends = {axis.path: axis.axis for axis in units.outputs}
    kernel = units.axes[0].path

    def on_leaf(path: Path, leaf: Array) -> Array:
        if path not in ends:
            return leaf
        shape = jnp.moveaxis(leaf, ends[path], 0).shape
        inputs = leaf.size // shape[0]
        part = rows[:, :inputs] if path == kernel else rows[:, -inputs:]
        return jnp.moveaxis(part.reshape(shape), 0, ends[path])

    return _by_path(on_leaf, params)


def replace(params: Params, units: Units, rows: Array, assignment: Array) -> Params:
    """The parameters with a new layer, which has unit i at row `assignment[i]`.

    Layers that read unit i read it there, and read 0 from rows without a unit.
    """
    index = positions(assignment, len(rows))
    return with_rows(rearrange(params, units, index), units, rows)


def outside(layers: Sequence[Units], params: Params) -> Params:
    """True at every leaf that belongs to none of these layers, for `tree.split`."""
    modules = {units.module for units in layers}
    return _by_path(lambda path, leaf: path[:-1] not in modules, params)


def _by_path(function: Callable[[Path, Array], Any], params: Params) -> Any:
    """The function of the path and the leaf, for every leaf."""

    def on_leaf(path: Any, leaf: Array) -> Any:
        return function(tuple(key.key for key in path), leaf)

    return jax.tree_util.tree_map_with_path(on_leaf, params)
