"""Permutations of hidden units by what the units put out, see `align`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from pfljax.core.statistics import STATISTICS
from pfljax.core.types import Array, Batch, ClientData, Params, Task
from pfljax.core.units import Units
from pfljax.landscape.align import Matched, find_best_order, permute_units


def match_activations(
    units: Sequence[Units],
    a: Params,
    b: Params,
    *,
    task: Task,
    data: ClientData,
) -> Matched:
    """(b with its units in the order closest to a, that order for each group).

    Closest is the order of the greatest sum of correlations between the outputs of the
    units, over examples, pixels and steps. Li et al., 2015,
    https://arxiv.org/abs/1511.07543; Ainsworth et al., ICLR 2023,
    https://arxiv.org/abs/2209.04836 (Section 3.1). Units that several
    layers put out, as beside a skip connection, are compared after each of them.

    Args:
      units: of the network of `task`.
      a, b: one model each.
      task: the model, of a Linen module.
      data: the examples of one client; a few hundred are enough. Memory holds the
        outputs of all layers for all of them.

    Raises:
      ValueError: as in `permute_units`, or a module has several layers.
    """
    layers = [_find_layers(group) for group in units]
    if len({first for first, *_ in layers}) < len(layers):
        raise ValueError(
            "a module has several layers and puts out the units of the last; match "
            "units by their weights, with match_units"
        )
    names = frozenset(name for group in layers for name in group)
    rows = np.arange(int(data.offset), int(data.offset + data.size))
    batch = Batch.full(np.asarray(data.examples.x)[rows])
    outputs = [jax.device_get(_record(task.predict, names, w, batch)) for w in (a, b)]
    orders = []
    for group, of_group in zip(units, layers, strict=True):
        score = sum(_correlate(group.size, *(w[n] for w in outputs)) for n in of_group)
        orders.append(find_best_order(np.asarray(score), int(group.parts)))
    return permute_units(units, b, orders), orders


@partial(jax.jit, static_argnums=(0, 1))
def _record(predict, names, params, batch):
    """The outputs of the layers of these names, which run in `predict`."""
    outputs = {}

    def record(module: nn.Module, output: Any) -> Any:
        name = "/".join(module.path)
        if name in names:
            outputs[name] = output
        return output

    change_outputs(predict, params, batch, record)
    return outputs


def change_outputs(
    predict: Callable[[Params, Batch], Array],
    params: Params,
    batch: Batch,
    change: Callable[[nn.Module, Any], Any],
) -> Array:
    """`predict`, where each module puts out `change(module, output)`."""

    def intercept(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        output = call(*args, **kwargs)
        if context.method_name == "__call__":
            return change(context.module, output)
        return output

    with nn.intercept_methods(intercept):
        return predict(params, batch)


def _find_layers(group: Units) -> list[str]:
    """The layers that put out the units: the first, and those with a bias or scale."""
    vectors = [axis.path for axis in group.axes if len(axis.shape) == 1]
    modules = [path[:-1] for path in vectors if STATISTICS not in path]
    return list(dict.fromkeys(map("/".join, (group.module, *modules))))


def _correlate(size: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The correlations f64[n, n] of units of a and b; 0 of a unit that is constant."""
    # Units are the fastest axis, behind examples, pixels and steps.
    rows = np.concatenate([z.reshape(-1, size) for z in (a, b)], 1, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.asarray(np.corrcoef(rows.T))
    return np.nan_to_num(correlation[:size, size:])
