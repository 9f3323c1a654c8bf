"""Reads, writes and reorders the units of a layer in the parameters of a model.

`Units` name the parameters that make the units of a layer, and those that read them.
`get_rows` returns a row for each unit, its incoming weights with its bias last, and
`set_rows` writes such rows. `reorder` moves the units to other positions in all of
these parameters, so that the model still computes the same function. FedMA matches the
rows of several clients, and then reorders their units.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from pfljax.core.types import Array, Params
from pfljax.core.units import Units, split_axis

NO_UNIT = jnp.iinfo(jnp.int32).max  # the index of a position without a unit


def get_rows(params: Params, units: Units) -> Array:
    """A row for each unit, f32[d, D]: its incoming weights, and its bias last."""
    leaves: Any = flatten_dict(params)
    rows = []
    for path, axis, _ in units.outputs:
        units_first = jnp.moveaxis(leaves[path], axis, 0)
        rows.append(units_first.reshape(len(units_first), -1))
    return jnp.concatenate(rows, 1)


def set_rows(params: Params, units: Units, rows: Array) -> Params:
    """The parameters with `rows` f32[d, D] as the rows of these units."""
    leaves: Any = flatten_dict(params)
    start = 0
    for path, axis, _ in units.outputs:
        shape = jnp.moveaxis(leaves[path], axis, 0).shape
        end = start + math.prod(shape[1:])
        part = rows[:, start:end].reshape(shape)
        leaves[path] = jnp.moveaxis(part, 0, axis)
        start = end
    return unflatten_dict(leaves)


def reorder(params: Params, units: Units, index: Array) -> Params:
    """The parameters whose unit i of a layer is unit `index[i]`; zeros past the end.

    The result has as many units as `index` i32[L] has entries.
    """
    leaves: Any = flatten_dict(params)
    for path, axis, shape in units.axes:
        pixels = shape[axis] // units.size
        leaves[path] = _take_units(leaves[path], axis, pixels, index)
    return unflatten_dict(leaves)


def _take_units(leaf: Array, axis: int, pixels: int, index: Array) -> Array:
    """The parameter with these units of an axis [pixels * units]."""
    by_unit = split_axis(leaf, axis, leaf.shape[axis] // pixels)
    taken = jnp.take(by_unit, index, axis + 1, mode="fill", fill_value=0)
    after = leaf.shape[axis + 1 :]
    return taken.reshape(*leaf.shape[:axis], -1, *after)


def replace_layer(
    params: Params, units: Units, rows: Array, assignment: Array
) -> Params:
    """The parameters with a new layer, which has unit i at row `assignment[i]`.

    Layers that read unit i read it there, and read 0 from rows without a unit.
    """
    index = invert(assignment, len(rows))
    return set_rows(reorder(params, units, index), units, rows)


def invert(assignment: Array, count: int) -> Array:
    """The unit at each of `count` positions; `assignment` i32[d] has those of units."""
    numbers = jnp.arange(len(assignment))
    return jnp.full(count, NO_UNIT).at[assignment].set(numbers)


def first_positions(units: Units, num_clients: int) -> Array:
    """The positions of all clients' units if they are the first ones, i32[C, d]."""
    return jnp.tile(jnp.arange(units.size), (num_clients, 1))


def mask_others(params: Params, layers: Sequence[Units]) -> Params:
    """True at each leaf that belongs to none of these layers, for `tree.split`."""
    modules = {units.module for units in layers}
    return unflatten_dict(
        {path: path[:-1] not in modules for path in flatten_dict(params)}
    )
