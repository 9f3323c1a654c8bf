"""Permutations of hidden units that bring one model close to another.

Networks that differ only in the order of their hidden units compute the same function,
but the line between two of them can have a high loss. `match_units` takes two models
a and b, and returns b with its units in the order that is closest to a. It is the
weight matching of Ainsworth et al., ICLR 2023 (git re-basin),
https://arxiv.org/abs/2209.04836.

    units = hidden_units(models.model("mlp", 10), a)
    matched, _ = match_units(units, a, b)
    before, after = (line(task, a, end, data) for end in (b, matched))

`activations` does so by what the units compute on examples, and `match_many` brings the
models of all clients close to one, or to each other.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from scipy.optimize import linear_sum_assignment

from pfljax.core.statistics import STATISTICS
from pfljax.core.types import Params
from pfljax.core.units import Path, Units, split_axis

Matched = tuple[Params, list[np.ndarray]]


def match_units(
    units: Sequence[Units],
    a: Params,
    b: Params,
    *,
    seed: int = 0,
    passes: int = 100,
) -> Matched:
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
            # Of b in the newest orders of all groups, including those of this pass.
            score = _score_units(units[g], leaves_a, leaves_b)
            order = find_best_order(score, int(units[g].parts))
            moved = _reorder_group(units[g], leaves_b, order)
            old, new = (
                _inner_product(units[g], leaves_a, leaves)
                for leaves in (leaves_b, moved)
            )
            # By more than rounding. The score of a recurrent layer is only its slope.
            if new > old + 1e-6 * abs(old):
                leaves_b |= moved
                orders[g] = orders[g][order]
                changed = True
        if not changed:
            break
    return unflatten_dict(leaves_b), orders


def match_many(
    units: Sequence[Units],
    models: Params,
    reference: Params | None = None,
    *,
    match: Callable[..., Matched] = match_units,
    seed: int = 0,
    passes: int = 20,
) -> Matched:
    """(K models, stacked [K, ...], with their units in order, orders [K, n] by group).

    Each model takes the order that is closest to the `reference`. If it is None, models
    in turn take the order closest to the mean of the others, until none changes:
    MergeMany of Ainsworth et al. A model that is not finite stays as it is. Barriers
    before and after are those of `pairs` of both stacks.

    Args:
      units: of the network.
      models: parameters stacked over K clients.
      reference: one model.
      match: `match_units`, or a `partial` of `match_activations` with task and data.
      seed: of the order in which models are visited.
      passes: over all models, at most.

    Raises:
      ValueError: as in `match`.
    """
    stacked = jax.device_get(models)
    count = len(jax.tree.leaves(stacked)[0])
    each = [jax.tree.map(lambda leaf, k=k: leaf[k], stacked) for k in range(count)]
    orders = [[np.arange(group.size) for group in units] for _ in each]
    finite = [
        k
        for k, params in enumerate(each)
        if all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    ]
    rng = np.random.default_rng(seed)
    for _ in range(passes if reference is None else 1):
        before = orders.copy()
        for k in rng.permutation(finite):
            target = reference
            if target is None:
                others = [each[n] for n in finite if n != k]
                target = jax.tree.map(lambda *leaves: np.mean(leaves, 0), *others)
            each[k], order = match(units, target, each[k])
            orders[k] = [old[new] for old, new in zip(orders[k], order, strict=True)]
        if jax.tree.all(jax.tree.map(np.array_equal, before, orders)):
            break
    together = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    return together, [np.stack(of_group) for of_group in zip(*orders, strict=True)]


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
        leaves |= _reorder_group(group, leaves, order)
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


def _score_units(group: Units, a: dict[Path, Any], b: dict[Path, Any]) -> np.ndarray:
    """The inner product of each unit of a with each unit of b, f64[n, n]."""
    total = np.zeros((group.size, group.size))
    for path, axis, _ in group.axes:
        # Statistics move with their units, but are no parameters.
        if STATISTICS not in path:
            units_a = _rows(a[path], axis, group.size)
            units_b = _rows(b[path], axis, group.size)
            total += units_a @ units_b.T
    return total


def _inner_product(group: Units, a: dict[Path, Any], b: dict[Path, Any]) -> float:
    """The inner product of all parameters that have these units."""
    paths = {axis.path for axis in group.axes if STATISTICS not in axis.path}
    return sum(np.sum(a[path] * b[path], dtype=np.float64) for path in paths)


def _reorder_group(
    group: Units, leaves: dict[Path, Any], order: np.ndarray
) -> dict[Path, Any]:
    """The parameters that have these units, with the units in this order."""
    moved = {}
    for path, axis, _ in group.axes:
        leaf = moved.get(path, leaves[path])
        by_unit = split_axis(leaf, axis, len(order))
        moved[path] = by_unit.take(order, axis + 1).reshape(leaf.shape)
    return moved


def _rows(leaf: np.ndarray, axis: int, count: int) -> np.ndarray:
    """The parameters of each unit, [count, rest]."""
    by_unit = split_axis(leaf, axis, count)
    return np.moveaxis(by_unit, axis + 1, 0).reshape(count, -1)


def find_best_order(score: np.ndarray, parts: int) -> np.ndarray:
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
