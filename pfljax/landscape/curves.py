"""Curves between models and simplexes of models, and the metrics along them.

Both are given by points, parameters stacked [n, ...]; each of their models is a sum of
the points by weights that add up to 1. `curve_training` makes those of low loss.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import registry
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import Array, ClientData, Params, Task
from pfljax.evaluation.over_clients import GRID
from pfljax.landscape import stacked
from pfljax.landscape.lines import Line, Positions, check_ascending, evaluate_mixtures

KINDS = ("bezier", "chain")


def curve_weights(kind: str, count: int, t: Any) -> Array:
    """Weights of `count` points at the positions `t` [...] of a curve, f32[..., count].

    "bezier": Bernstein polynomials of degree count - 1. "chain": straight pieces of one
    length in t. Garipov et al., NeurIPS 2018, https://arxiv.org/abs/1802.10026
    (Section 3.2).
    """
    registry.require_known("kind", kind, KINDS)
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
    batch_size: int = 10,
    chunk: int | None = None,
) -> Line:
    """Metrics along the curve of these points: a `Line` whose t is the curve's.

    Its `arc` is the length of the straight pieces between the positions.

    Arguments are those of `line`; `points` are what `train_curve` returns.

    Raises:
      ValueError: as of `line`, or `t` leaves [0, 1], where the curve lies.
    """
    positions = check_ascending(t)
    if positions[0] < 0 or positions[-1] > 1:
        raise ValueError(f"t is {t}, expected places from 0 to 1, where the curve lies")
    models = separate(task, points)
    weights = np.asarray(curve_weights(kind, len(models), positions))
    metrics = mixtures(
        task,
        points,
        weights,
        data,
        batch_size,
        chunk,
    )
    return Line(
        t=positions,
        metrics=metrics,
        arc=_arc(task, models, weights),
    )


def _arc(task: Task, points: list[Params], weights: np.ndarray) -> np.ndarray:
    """Lengths up to each of the models of weights [T, n], f64[T] or f64[C, T]."""
    clients = stacked.num_clients(task, points[0], "points")
    gram = _gram(points, clients or 1)
    weights = weights.astype(np.float64)
    steps = np.diff(weights, axis=0)
    # |sum_i s_i p_i|^2 = s' G s, since the weights s of a step add up to 0.
    squares = np.einsum("ti,cij,tj->ct", steps, gram, steps)
    # A step of length 0 may be rounded to less.
    squares = np.maximum(squares, 0)
    lengths = np.sqrt(squares)
    arc = np.cumsum(lengths, axis=1)
    # The first model lies at length 0.
    arc = np.insert(arc, 0, 0, axis=1)
    if clients is None:
        return arc[0]
    return arc


def _gram(points: list[Params], clients: int) -> np.ndarray:
    """Inner products of the points less the first, f64[C, n, n]."""
    gram: Any = 0.0
    leaves_by_point = map(jax.tree.leaves, points)
    for leaves in zip(*leaves_by_point, strict=True):
        vectors = [np.asarray(leaf, np.float64).reshape(clients, -1) for leaf in leaves]
        # Differences are small beside the points: less the first, they keep digits.
        differences = np.stack([vector - vectors[0] for vector in vectors], 1)
        gram = gram + differences @ differences.swapaxes(1, 2)
    return gram


def mixtures(
    task: Task,
    points: Params,
    weights: Any,
    data: ClientData,
    batch_size: int = 10,
    chunk: int | None = None,
) -> dict[str, np.ndarray]:
    """Metrics of the models of weights [P, n] of n points, f32[P] or f32[C, P].

    `points` are stacked [n, ...], or [C, n, ...] for C clients.
    """
    models = separate(task, points)
    named = {f"point {i}": model for i, model in enumerate(models)}
    return evaluate_mixtures(
        task,
        named,
        np.asarray(weights),
        data,
        batch_size,
        chunk,
    )


def separate(task: Task, points: Params) -> list[Params]:
    """The points one by one, each one model or stacked [C, ...].

    Raises:
      ValueError: there is no axis of points, or its length differs between leaves.
    """
    one_model = jax.tree.leaves(shapes_of_model(task))[0].shape
    first = jax.tree.leaves(points)[0].shape
    axis = len(first) - len(one_model) - 1
    if axis not in (0, 1):
        raise ValueError(
            f"points have a leaf of shape {first}, expected {one_model} "
            "behind one axis of points, or behind two, of clients and points"
        )
    counts = {np.shape(leaf)[axis] for leaf in jax.tree.leaves(points)}
    if len(counts) > 1:
        raise ValueError(
            f"points have leaves of {', '.join(map(str, sorted(counts)))} points; "
            "expected as many at every leaf"
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
