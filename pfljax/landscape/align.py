"""Permutations of hidden units that bring one model close to another.

Networks that differ only in the order of their hidden units compute the same function,
but the line between two of them can have a high loss. `match_units` takes two models
a and b, and returns b with its units in the order that is closest to a. It is the
weight matching of Ainsworth et al., ICLR 2023 (git re-basin),
https://arxiv.org/abs/2209.04836.

    units = hidden_units(models.model("mlp", 10), a)
    matched, _ = match_units(units, a, b)
    before, after = (line(task, a, end, data) for end in (b, matched))
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from scipy.optimize import linear_sum_assignment

from pfljax.core.types import Params
from pfljax.core.units import Path, Units, split_axis


def match_units(
    units: Sequence[Units],
    a: Params,
    b: Params,
    *,
    seed: int = 0,
    passes: int = 100,
) -> tuple[Params, list[np.ndarray]]:
    """(b with its units in the order closest to a, that order for each group).

    Each group in turn takes the order with the greatest inner product of the
    parameters, until none changes (Ainsworth et al., Algorithm 1). The distance to a
    never grows. The result is a local optimum; it depends on the order in which groups
    are visited, which follows from `seed`.

    Raises:
      ValueError: as in `permute_units`.
    """
    rng = np.random.default_rng(seed)
    leaves_a = _flatten(units, a, "a")
    leaves_b = _flatten(units, b, "b")
    orders = [np.arange(group.size) for group in units]
    for _ in range(passes):
        changed = False
        for g in rng.permutation(len(units)):
            # Uses the newest orders of all other groups, including those of this pass.
            score = _score_units(units, g, orders, leaves_a, leaves_b)
            order = _find_best_order(score, int(units[g].parts))
            if _is_better(score, order, orders[g]):
                orders[g] = order
                changed = True
        if not changed:
            break
    return permute_units(units, b, orders), orders


def permute_units(
    units: Sequence[Units],
    params: Params,
    orders: Sequence[np.ndarray],
) -> Params:
    """The model whose units of group g are those of `params` in the order `orders[g]`.

    It computes the same function as `params`.

    Raises:
      ValueError: `params` are not one model of the network whose units these are.
    """
    leaves = _flatten(units, params, "params")
    for group, order in zip(units, orders, strict=True):
        for path, axis, _ in group.axes:
            # A kernel has the units of two groups, each along its own axis.
            leaves[path] = _reorder(leaves[path], axis, order)
    return unflatten_dict(leaves)


def _flatten(units: Sequence[Units], params: Params, name: str) -> dict[Path, Any]:
    """The parameters by path, after a check that the units are theirs."""
    leaves: Any = flatten_dict(jax.device_get(params))
    axes = [axis for group in units for axis in group.axes]
    for path, _, expected in axes:
        shape = np.shape(leaves[path]) if path in leaves else None
        if shape != expected:
            raise ValueError(
                f"{name} has shape {shape} at {'/'.join(path)}, expected {expected}; "
                "give one model's parameters (a client's of stacked ones), of the "
                "network whose units these are"
            )
    return leaves


def _score_units(
    units: Sequence[Units],
    g: int,
    orders: Sequence[np.ndarray],
    a: dict[Path, Any],
    b: dict[Path, Any],
) -> np.ndarray:
    """The inner product of each unit of a with each unit of b, f64[n, n].

    The units are those of group g; all other groups of b are in their current order.
    """
    size = units[g].size
    total = np.zeros((size, size))
    for path, axis, _ in units[g].axes:
        leaf = b[path]
        for group, order in enumerate(orders):
            for other_path, other_axis, _ in units[group].axes:
                is_sought = group == g and other_axis == axis
                if other_path == path and not is_sought:
                    leaf = _reorder(leaf, other_axis, order)
        units_a = _rows(a[path], axis, size)
        units_b = _rows(leaf, axis, size)
        total += units_a @ units_b.T
    return total


def _reorder(leaf: np.ndarray, axis: int, order: np.ndarray) -> np.ndarray:
    """The parameter with the units of an axis in this order."""
    by_unit = split_axis(leaf, axis, len(order))
    return by_unit.take(order, axis + 1).reshape(leaf.shape)


def _rows(leaf: np.ndarray, axis: int, count: int) -> np.ndarray:
    """The parameters of each unit, [count, rest]."""
    by_unit = split_axis(leaf, axis, count)
    return np.moveaxis(by_unit, axis + 1, 0).reshape(count, -1)


def _find_best_order(score: np.ndarray, parts: int) -> np.ndarray:
    """The order of the greatest total score that keeps the parts together."""
    if parts == 1:
        return _assign(score)
    size = len(score) // parts
    # blocks[p, q] has the scores of the units of part p of a and part q of b.
    blocks = score.reshape(parts, size, parts, size).swapaxes(1, 2)
    inner = np.array([[_assign(block) for block in row] for row in blocks])
    best = np.take_along_axis(blocks, inner[..., None], -1).sum((-2, -1))
    # Which part of b goes to each part of a, each with its best order within.
    outer = _assign(best)
    return np.concatenate([q * size + inner[p, q] for p, q in enumerate(outer)])


def _assign(score: np.ndarray) -> np.ndarray:
    """The column of each row, each once, with the greatest total score."""
    _, columns = linear_sum_assignment(score, maximize=True)
    return columns


def _is_better(score: np.ndarray, order: np.ndarray, current: np.ndarray) -> bool:
    """Whether an order scores more than the current one, by more than rounding."""
    unit = np.arange(len(order))
    old = score[unit, current].sum()
    new = score[unit, order].sum()
    return new > old + 1e-6 * abs(old)
