"""Metrics along the straight line (1 - t) a + t b between two models.

`line` judges its points, `between` compares its ends; both take one model or models
stacked over clients, and are one compiled program. Running statistics of batch
normalisation are mixed as parameters are: no point takes new ones of the data.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.minibatches import in_batches, rows
from pfljax.core.types import Array, Batch, ClientData, Params, Task
from pfljax.evaluation.metrics import score
from pfljax.evaluation.over_clients import GRID
from pfljax.evaluation.passes import even_passes, rows_per_pass
from pfljax.landscape import stacked

Positions = Sequence[float] | np.ndarray


class Line(NamedTuple):
    """Metrics at (1 - t) a + t b."""

    t: np.ndarray  # f32[T], ascending
    metrics: dict[str, np.ndarray]  # "loss", "accuracy", ...: f32[T] or f32[C, T]
    arc: np.ndarray | None = None  # f64[T] or f64[C, T], length up to t; None: as t

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of each metric; of `pairs` from client to other."""
        rank = np.ndim(next(iter(self.metrics.values())))
        return (*("client", "other")[: rank - 1], "t")


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
    t: Positions = GRID,
    batch_size: int = 10,
    chunk: int | None = None,
) -> Line:
    """Metrics along the line from `a` to `b`.

    Args:
      task: the model.
      a, b: parameters of one model, or stacked over C clients.
      data: rows of one client, or of C, each for its own line; `landscape.pooled` makes
        the rows of all those of one.
      t: positions on the line, ascending; 0 is a, 1 is b, beyond is allowed.
      batch_size: of the batchwise calibration errors.
      chunk: clients judged at once; None: 1 on a CPU, else as many as fit.

    Returns:
      Metrics f32[C, T] if anything is stacked, else f32[T]; NaN of clients without
      rows.

    Raises:
      ValueError: shapes that are not this task's or do not go together, or `t` is not
        ascending.
    """
    positions = check_ascending(t)
    weights = np.stack([1 - positions, positions], 1)
    models = {"a": a, "b": b}
    metrics = evaluate_mixtures(
        task,
        models,
        weights,
        data,
        batch_size,
        chunk,
    )
    return Line(t=positions, metrics=metrics)


def evaluate_mixtures(
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
    is_stacked = stacked.find_stacked(task, models, data)
    stacked.check_whole("batch_size", batch_size, 1)
    shape = np.shape(weights)
    if len(shape) != 2 or shape[1] != len(models):
        raise ValueError(
            f"weights have shape {shape}, expected (P, {len(models)}): "
            f"in each row one for each of {', '.join(models)}"
        )
    # On the host, before tracing: the number of rows at once shapes the program.
    most_rows = int(np.max(data.size, initial=1))
    arguments = (
        task.predict,
        tuple(models.values()),
        data,
        np.asarray(weights, np.float32),
        is_stacked,
        batch_size,
        even_passes(most_rows, batch_size),
    )
    return jax.device_get(stacked.call(_evaluate_mixtures, arguments, chunk))


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
    is_stacked = stacked.find_stacked(task, {"a": a, "b": b}, data)
    stacked.check_whole("batch_size", batch_size, 1)
    arguments = (task.predict, (a, b), data, is_stacked, batch_size)
    return Between(**jax.device_get(stacked.call(_compare, arguments, chunk)))


# Jitted once for all tasks: `predict` is part of the key, so that equal shapes of one
# task are never traced again.
@partial(
    jax.jit, static_argnames=("predict", "is_stacked", "batch_size", "at_once", "width")
)
def _evaluate_mixtures(
    predict, models, data, weights, is_stacked, batch_size, at_once, width
):
    """Metrics f32[P], or f32[C, P] if anything is stacked."""

    def one(models, data):
        def metrics_at(w):
            model = stacked.mix_models(w, models)
            metrics = score(partial(predict, model), data, batch_size, at_once)
            return stacked.or_nan(model, metrics)

        # One model at a time: a vmap would hold all P models in memory.
        return jax.lax.map(metrics_at, weights)

    return stacked.over_models(one, models, data, is_stacked, width)


@partial(jax.jit, static_argnames=("predict", "is_stacked", "batch_size", "width"))
def _compare(predict, models, data, is_stacked, batch_size, width):
    """The fields of `Between`."""

    def one(models, data):
        def both_logits(batch):
            return tuple(predict(model, batch) for model in models)

        def sum_of_logits(batch):
            return jnp.add(*both_logits(batch))

        ensemble = score(sum_of_logits, data, batch_size)
        return {
            "ensemble": stacked.or_nan(models, ensemble),
            "total_variation": _total_variation(both_logits, data, batch_size),
            "cosine": cosine(*models),
            "distance": distance(*models),
        }

    return stacked.over_models(one, models, data, is_stacked, width)


def _total_variation(
    both_logits: Callable[[Batch], tuple[Array, ...]],
    data: ClientData,
    batch_size: int,
) -> Array:
    """Mean over a client's rows of 1/2 sum |p - q|, f32[]; NaN if it has none."""
    at_once = rows_per_pass(batch_size)
    offsets = jnp.arange(at_once)

    def add(index: Array, total: Array) -> Array:
        row = index * at_once + offsets
        # Rows past the end read the client's last row, under mask 0.
        existing = jnp.minimum(row, data.size - 1)
        batch = rows(data, existing, row < data.size)
        parts = in_batches(batch, batch_size)
        logits = jax.vmap(both_logits)(parts)
        p, q = (jax.nn.softmax(y.astype(jnp.float32)) for y in logits)
        by_row = jnp.abs(p - q).sum(-1)
        return total + jnp.sum(parts.mask * by_row) / 2

    passes = -(-data.size // at_once)
    total = jax.lax.fori_loop(0, passes, add, jnp.float32(0))
    return total / jnp.where(data.size > 0, data.size, jnp.nan)


def cosine(a: Params, b: Params) -> Array:
    """Cosine of the angle between two parameter trees, f32[]; 0 if one is zero."""
    # Two roots and not one: the product of the squares may overflow float32.
    norm_a = jnp.sqrt(tree.square_norm(a))
    norm_b = jnp.sqrt(tree.square_norm(b))
    scale = norm_a * norm_b
    return tree.dot(a, b) / jnp.maximum(scale, 1e-12)


def distance(a: Params, b: Params) -> Array:
    """L2 norm of a - b, f32[]."""
    return jnp.sqrt(tree.square_norm(tree.sub(a, b)))


def check_ascending(t: Positions, name: str = "t") -> np.ndarray:
    """Positions on a line or an axis, f32[T]; `name` is what a message calls them.

    Raises:
      ValueError: they do not ascend.
    """
    positions = np.asarray(t, np.float32)
    is_list = positions.ndim == 1 and len(positions) > 0
    if not is_list or not (np.diff(positions) > 0).all():
        raise ValueError(f"{name} is {t}, expected ascending numbers such as {GRID}")
    return positions
