"""Curves between models and simplexes of models, and the metrics along them.

Both are given by points, parameters stacked [n, ...]. Each of their models is a sum of
the points by weights that add up to 1. `curve_training` makes those of low loss.
"""

import math
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import requirements
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import Array, ClientData, Params, Task
from pfljax.evaluation.over_clients import GRID
from pfljax.landscape.lines import (
    Line,
    Options,
    Positions,
    check_ascending,
    evaluate_mixtures,
)

KINDS = ("bezier", "chain")


def curve_weights(kind: str, count: int, t: Any) -> Array:
    """Weights of `count` points at the positions `t` [...] of a curve, f32[..., count].

    "bezier": Bernstein polynomials of degree count - 1. "chain": straight pieces of the
    same length in t. Garipov et al., NeurIPS 2018, https://arxiv.org/abs/1802.10026
    (Section 3.2).
    """
    requirements.require_known("kind", kind, KINDS)
    t = jnp.asarray(t, jnp.float32)[..., None]
    k = np.arange(count)
    if kind == "chain":
        # A hat around each point, as wide as a piece of the chain.
        distance = jnp.abs(t * (count - 1) - k)
        return jnp.maximum(0, 1 - distance)
    degree = count - 1
    binomials = np.array([math.comb(degree, i) for i in k], np.float32)
    # k[::-1] is degree - k.
    return binomials * t**k * (1 - t) ** k[::-1]


def curve(
    task: Task,
    points: Params,
    data: ClientData,
    *,
    kind: str = "bezier",
    t: Positions = GRID,
    **options: Unpack[Options],
) -> Line:
    """Metrics along the curve of these points, which `train_curve` returns.

    The other arguments are those of `line`.

    Raises:
      ValueError: as in `line`, or `t` leaves [0, 1], where the curve lies.
    """
    positions = check_ascending(t)
    if positions[0] < 0 or positions[-1] > 1:
        raise ValueError(f"t is {t}; expected positions from 0 to 1, on the curve")
    models = _name(separate(task, points))
    weights = np.asarray(curve_weights(kind, len(models), positions))
    # A bend was trained as a part of the curve alone.
    keep = (positions == 0) | (positions == 1)
    metrics = evaluate_mixtures(task, models, weights, data, keep=keep, **options)
    return Line(t=positions, metrics=metrics)


def mixtures(
    task: Task,
    points: Params,
    weights: Any,
    data: ClientData,
    **options: Unpack[Options],
) -> dict[str, np.ndarray]:
    """Metrics of the models of weights [P, n] of n points, f32[P] or f32[C, P].

    `points` are stacked [n, ...], or [C, n, ...] for C clients. The other arguments are
    those of `line`; the points themselves keep their statistics.
    """
    models = _name(separate(task, points))
    return evaluate_mixtures(task, models, np.asarray(weights), data, **options)


def _name(models: list[Params]) -> dict[str, Params]:
    return {f"point {i}": model for i, model in enumerate(models)}


def separate(task: Task, points: Params) -> list[Params]:
    """The points one by one, each one model or stacked [C, ...].

    Raises:
      ValueError: there is no axis of points.
    """
    one_model = jax.tree.leaves(shapes_of_model(task))[0].shape
    first = jax.tree.leaves(points)[0].shape
    axis = len(first) - len(one_model) - 1
    if axis not in (0, 1):
        raise ValueError(
            f"points have a leaf of shape {first}, expected {one_model} "
            "behind one axis of points, or behind two, of clients and points"
        )
    return [
        jax.tree.map(lambda leaf, i=i: leaf.take(i, axis), points)
        for i in range(first[axis])
    ]


def mix(points: Params, weights: Array) -> Params:
    """The model of these weights f32[n] of the points."""
    return jax.tree.map(
        lambda leaf: jnp.tensordot(weights, leaf, 1, precision="highest"), points
    )
