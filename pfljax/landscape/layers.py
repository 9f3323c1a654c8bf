"""The layers of a model, and lines on which one of them moves at a time."""

from collections.abc import Sequence
from typing import Unpack

import jax
import numpy as np

from pfljax.core import tree
from pfljax.core.statistics import STATISTICS
from pfljax.core.types import ClientData, Params, Task
from pfljax.evaluation.over_clients import GRID
from pfljax.landscape import lines


def find_layers(task: Task, layers: Sequence[str] | None = None) -> dict[str, Params]:
    """Each layer's leaves: trees of bools, by the layer's name.

    `layers` are groups of leaves, named by the starts of their paths, such as
    ["body/layers_0", "body", "head"]. A leaf is in the first group that fits. None
    stands for each module that has parameters, in the order of their calls.

    Raises:
      ValueError: a group has no leaf.
    """
    numbers = tree.paths(task.modules)
    if layers is None:
        owners = {path: _find_module(path) for path in numbers}
        called = sorted(numbers, key=lambda path: numbers[path])
        layers = list(dict.fromkeys(owners[path] for path in called))
    else:
        owners = {path: _find_group(path, layers) for path in numbers}
    if empty := [layer for layer in layers if layer not in owners.values()]:
        raise ValueError(
            f"layers has {empty[0]!r}, in which no parameter is; expected starts of "
            f"{', '.join(numbers)}"
        )
    structure = jax.tree.structure(task.modules)
    return {
        layer: jax.tree.unflatten(structure, [owners[p] == layer for p in numbers])
        for layer in layers
    }


def _find_module(path: str) -> str:
    """The module of a leaf; statistics lie one level deeper than its parameters."""
    return path.rpartition("/")[0].removesuffix(f"/{STATISTICS}")


def _find_group(path: str, layers: Sequence[str]) -> str | None:
    """The first of the starts of paths that this path has."""
    fitting = (layer for layer in layers if f"{path}/".startswith(f"{layer}/"))
    return next(fitting, None)


def layer_lines(
    task: Task,
    a: Params,
    b: Params,
    data: ClientData,
    *,
    layers: Sequence[str] | None = None,
    cumulative: bool = False,
    t: lines.Positions = GRID,
    **options: Unpack[lines.Options],
) -> dict[str, lines.Line]:
    """Lines from `a` on which one layer alone moves to that of `b`, by its name.

    Adilova et al., ICLR 2024, https://arxiv.org/abs/2307.06966. Their barrier is the
    excess over a line between a and b, and that of `barrier` over the line's own ends.

    Args:
      task: the model.
      a, b: parameters of one model, or stacked over C clients.
      data: as in `line`.
      layers: as in `find_layers`.
      cumulative: whether a layer starts where those before it have moved already. Then
        each line begins where the last one ended, and they lead from a to b.
      t, options: as in `line`; a and b keep their running statistics.

    Raises:
      ValueError: as in `line` and `find_layers`.
    """
    positions = lines.check_ascending(t)
    weights = np.stack([1 - positions, positions], 1)
    # Both are stacked if one is.
    start, b = (
        jax.tree.map(lambda *leaves, n=n: np.broadcast_arrays(*leaves)[n], a, b)
        for n in (0, 1)
    )
    found = {}
    moved = [False] * len(jax.tree.leaves(task.modules))
    for name, layer in find_layers(task, layers).items():
        end = jax.tree.map(lambda moves, p, q: q if moves else p, layer, start, b)
        starts_at_a = not any(moved)
        after = [x or y for x, y in zip(moved, jax.tree.leaves(layer), strict=True)]
        keep = (positions == 0) & starts_at_a | (positions == 1) & all(after)
        ends = {"start": start, "end": end}
        given = task, ends, weights, data
        metrics = lines.evaluate_mixtures(*given, keep=keep, **options)
        found[name] = lines.Line(t=positions, metrics=metrics)
        if cumulative:
            start, moved = end, after
    return found
