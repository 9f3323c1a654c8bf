"""Metrics along the straight line (1 - t) a + t b between two models.

`line` judges its points, `between` compares its ends; both take one model or models
stacked over clients, and are one compiled program. No `Task` has running statistics of
its normalisation (models.task refuses them): each point's are those of its own batches.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.training import in_batches, rows
from pfljax.core.types import Array, Batch, ClientData, Params, Task
from pfljax.evaluation.metrics import (
    GREATER_IS_BETTER,
    GRID,
    even_passes,
    rows_per_pass,
    score,
)
from pfljax.landscape import stacked

Places = Sequence[float] | np.ndarray


class Line(NamedTuple):
    """Metrics at (1 - t) a + t b."""

    t: np.ndarray  # f32[T], ascending
    metrics: dict[str, np.ndarray]  # "loss", "accuracy", ...: f32[T] or f32[C, T]
    arc: np.ndarray | None = None  # f64[T] or f64[C, T], length up to t; None: as t

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of each metric; of `pairs` from client to other."""
        shape = np.shape(next(iter(self.metrics.values())))
        return (*("client", "other")[: len(shape) - 1], "t")


class Between(NamedTuple):
    """How two models differ; each f32[], or f32[C] of stacked ones."""

    ensemble: dict[str, np.ndarray]  # metrics of the sum of both models' logits
    total_variation: np.ndarray  # mean over rows of 1/2 sum |p - q|, 0 to 1
    cosine: np.ndarray  # of the angle between the parameters, all leaves as one vector
    distance: np.ndarray  # L2 norm of a - b


def line(
    task: Task,
    a: Params,
    b: Params,
    data: ClientData,
    *,
    t: Places = GRID,
    batch_size: int = 10,
    chunk: int | None = None,
) -> Line:
    """Metrics along the line from `a` to `b`.

    Args:
      task: the model.
      a, b: parameters of one model, or stacked over C clients.
      data: rows of one client, or of C, each for its own line; `landscape.pooled` makes
        the rows of all those of one.
      t: places on the line, ascending; 0 is a, 1 is b, beyond is allowed.
      batch_size: of the batchwise calibration errors.
      chunk: clients judged at once; None: 1 on a CPU, else as many as fit.

    Returns:
      Metrics f32[C, T] if anything is stacked, else f32[T]; NaN of clients without
      rows.

    Raises:
      ValueError: shapes that are not this task's or do not go together, or `t` is not
        ascending.
    """
    places = ascending(t)
    weights = np.stack([1 - places, places], 1)
    models = {"a": a, "b": b}
    return Line(places, judge(task, models, weights, data, batch_size, chunk))


def judge(
    task: Task,
    models: Mapping[str, Params],
    weights: np.ndarray,
    data: ClientData,
    batch_size: int,
    chunk: int | None = None,
) -> dict[str, np.ndarray]:
    """Metrics of sums of models by weights [P, n], f32[P] or f32[C, P]; see `line`.

    Raises:
      ValueError: as of `line`, or a row of weights has not one for each model.
    """
    each = stacked.count_all(task, models, data)
    stacked.at_least("batch_size", batch_size, 1)
    if np.ndim(weights) != 2 or np.shape(weights)[1] != len(models):
        raise ValueError(
            f"weights have shape {np.shape(weights)}, expected (P, {len(models)}): "
            f"in each row one for each of {', '.join(models)}"
        )
    passes = batch_size, even_passes(int(np.max(data.size, initial=1)), batch_size)
    given = tuple(models.values()), data, np.asarray(weights, np.float32)
    given = task.predict, *given, each, passes
    return jax.device_get(stacked.call(_judge, given, chunk))


def between(
    task: Task,
    a: Params,
    b: Params,
    data: ClientData,
    *,
    batch_size: int = 10,
    chunk: int | None = None,
) -> Between:
    """What two models have in common on rows `data`; arguments are those of `line`.

    The ensemble adds logits, so its loss is that of a sharper distribution than the
    mean of logits would give; its accuracy is the same.
    """
    each = stacked.count_all(task, {"a": a, "b": b}, data)
    stacked.at_least("batch_size", batch_size, 1)
    given = task.predict, (a, b), data, each, batch_size
    return Between(*jax.device_get(stacked.call(_compare, given, chunk)))


# Jitted once for all tasks: `predict` is part of the key, so that equal shapes of one
# task are never traced again.
@partial(jax.jit, static_argnames=("predict", "each", "passes", "width"))
def _judge(predict, models, data, weights, each, passes, width):
    """Metrics f32[P], or f32[C, P] if anything is stacked."""

    def one(models, data):
        def at(w):
            model = stacked.mixture(w, models)
            found = score(partial(predict, model), data, *passes)
            return stacked.if_finite(model, found)

        return jax.lax.map(at, weights)

    return stacked.over_models(one, models, data, each, width)


@partial(jax.jit, static_argnames=("predict", "each", "batch_size", "width"))
def _compare(predict, models, data, each, batch_size, width):
    """The fields of `Between`."""

    def one(models, data):
        def both(batch):
            return tuple(predict(model, batch) for model in models)

        found = score(lambda batch: jnp.add(*both(batch)), data, batch_size)
        return (
            stacked.if_finite(models, found),
            _total_variation(both, data, batch_size),
            cosine(*models),
            distance(*models),
        )

    return stacked.over_models(one, models, data, each, width)


def _total_variation(
    both: Callable[[Batch], tuple[Array, ...]], data: ClientData, batch_size: int
) -> Array:
    """Mean over a client's rows of 1/2 sum |p - q|, f32[]; NaN if it has none."""
    at_once = rows_per_pass(batch_size)
    places = jnp.arange(at_once)

    def add(index: Array, total: Array) -> Array:
        place = index * at_once + places
        batch = rows(data, jnp.minimum(place, data.size - 1), place < data.size)
        parts = in_batches(batch, batch_size)
        logits = jax.vmap(both)(parts)
        p, q = (jax.nn.softmax(y.astype(jnp.float32)) for y in logits)
        return total + jnp.sum(parts.mask * jnp.abs(p - q).sum(-1)) / 2

    total = jax.lax.fori_loop(0, -(-data.size // at_once), add, jnp.float32(0))
    return total / jnp.where(data.size > 0, data.size, jnp.nan)


def cosine(a: Params, b: Params) -> Array:
    """Cosine of the angle between two parameter trees, f32[]; 0 if one is zero."""
    scale = jnp.sqrt(tree.square_norm(a)) * jnp.sqrt(tree.square_norm(b))
    return tree.dot(a, b) / jnp.maximum(scale, 1e-12)


def distance(a: Params, b: Params) -> Array:
    """L2 norm of a - b, f32[]."""
    return jnp.sqrt(tree.square_norm(tree.sub(a, b)))


def barrier(line: Line, metric: str = "loss") -> np.ndarray:
    """The largest excess over the straight line between the ends' values, f64[...].

    max over t in [0, 1] of phi(t) - ((1 - t) phi(0) + t phi(1)); of an accuracy, the
    largest drop below it. The ends count, so it is never negative, and 0 says that the
    ends are connected. Entezari et al., ICLR 2022, https://arxiv.org/abs/2110.06296.

    Raises:
      ValueError: the metric is unknown, or the line lacks t = 0 or 1; so do the
        functions below.
    """
    t, value = _errors(line, metric)
    with np.errstate(invalid="ignore"):  # of a diverged model it is NaN
        straight = (1 - t) * value[..., :1] + t * value[..., -1:]
        return (value - straight).max(-1)


def height(line: Line, metric: str = "loss") -> np.ndarray:
    """How much worse the worst point in [0, 1] is than the mean of the ends, f64[...].

    Frankle et al., ICML 2020, https://arxiv.org/abs/1912.05671 (their instability).
    """
    _, value = _errors(line, metric)
    with np.errstate(invalid="ignore"):
        return value.max(-1) - (value[..., 0] + value[..., -1]) / 2


def arc_mean(line: Line, metric: str = "loss") -> np.ndarray:
    """Mean over [0, 1] weighted by arc length, by the trapezoid rule, f64[...].

    On a straight line the arc length is t times the distance; a `curve` has its own.
    Garipov et al., NeurIPS 2018, https://arxiv.org/abs/1802.10026.
    """
    t, value = _within(line, metric)
    if line.arc is None:
        return np.trapezoid(value, t, axis=-1)
    arc = line.arc[..., (line.t >= 0) & (line.t <= 1)]
    length = arc[..., -1:] - arc[..., :1]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(length == 0, t, (arc - arc[..., :1]) / length)
    return np.trapezoid(value, share, axis=-1)


def midpoint(line: Line, metric: str = "accuracy") -> np.ndarray:
    """The value at t = 1/2, f64[...].

    Raises:
      ValueError: the line has no such point.
    """
    t, value = _within(line, metric)
    middle = np.flatnonzero(t == 0.5)
    if not len(middle):
        raise ValueError(f"the line has no point t = 0.5, but {t.tolist()}; judge it")
    return value[..., middle[0]]


def flat_range(
    line: Line, metric: str = "accuracy", tolerance: float = 0.01
) -> np.ndarray:
    """Length of {t in [0, 1]: at most `tolerance` worse than the best point}, f64[...].

    The metric is taken as linear between neighbouring points; tolerance is in its unit.
    """
    t, value = _errors(line, metric)
    with np.errstate(invalid="ignore"):
        room = value.min(-1, keepdims=True) + tolerance - value
    left, right = room[..., :-1], room[..., 1:]
    inside = np.maximum(left, 0) + np.maximum(right, 0)
    total = np.abs(left) + np.abs(right)
    share = np.where(total == 0, 1.0, inside / np.where(total == 0, 1.0, total))
    return (share * np.diff(t)).sum(-1)


def ascending(t: Places, name: str = "t") -> np.ndarray:
    """Places on a line or an axis, f32[T]; `name` is what a message calls them.

    Raises:
      ValueError: they do not ascend.
    """
    places = np.asarray(t, np.float32)
    if places.ndim != 1 or not len(places) or not (np.diff(places) > 0).all():
        raise ValueError(f"{name} is {t}, expected ascending numbers such as {GRID}")
    return places


def _within(line: Line, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """(t f64[T], the metric f64[..., T]) of the points from t = 0 to 1."""
    if metric not in line.metrics:
        known = ", ".join(line.metrics)
        raise ValueError(f"metric {metric!r} is unknown; known: {known}")
    inside = (line.t >= 0) & (line.t <= 1)
    t = line.t[inside].astype(np.float64)
    if not len(t) or t[0] != 0 or t[-1] != 1:
        raise ValueError(
            f"the line has the points {line.t.tolist()}, expected t = 0 and t = 1 "
            "among them; judge both ends"
        )
    return t, np.asarray(line.metrics[metric], np.float64)[..., inside]


def _errors(line: Line, metric: str) -> tuple[np.ndarray, Any]:
    """`_within`, negated where greater is better: less is better."""
    t, value = _within(line, metric)
    return t, -value if metric in GREATER_IS_BETTER else value
