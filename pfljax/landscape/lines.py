"""Metrics along the straight line (1 - t) a + t b between two models.

`line` evaluates points on it, and `between` compares its ends. Both take one model, or
models stacked over clients, and run one compiled program. Running statistics of batch
normalisation are computed anew at each point, see `batch_statistics`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.minibatches import in_batches, take_batch
from pfljax.core.types import Array, Batch, ClientData, Params, Task
from pfljax.evaluation.metrics import score
from pfljax.evaluation.over_clients import GRID
from pfljax.evaluation.passes import even_passes, rows_per_pass
from pfljax.landscape import batch_statistics, stacked

Positions = Sequence[float] | np.ndarray


class Options(TypedDict, total=False):
    """How models between others are evaluated.

    statistics: "recompute" the running statistics of such a model on `train`; the
      models at the ends keep theirs. "mix" interpolates them like parameters. "repair"
      restores means and deviations of hidden units, see `repair`; only for weights
      from 0 to 1, as on lines.
    train: training examples of one client, or of C clients, for statistics. At most
      4,096 of a client are used, and 1,024 to repair, spread over all.
    batch_size: the batch size of the batchwise calibration errors, 10 by default.
    """

    statistics: str
    train: ClientData | None
    batch_size: int


class Line(NamedTuple):
    """Metrics at (1 - t) a + t b."""

    t: np.ndarray  # f32[T], ascending
    metrics: dict[str, np.ndarray]  # "loss", "accuracy", ...: f32[T] or f32[C, T]


class Between(NamedTuple):
    """How two models differ; each field is f32[], or f32[C] for stacked models."""

    ensemble: dict[str, np.ndarray]  # metrics of the sum of both models' logits
    total_variation: np.ndarray  # mean over examples of 1/2 sum |p - q|, 0 to 1
    cosine: np.ndarray  # of the angle between the parameters, all leaves as one vector
    distance: np.ndarray  # L2 norm of a - b


def line(
    task: Task,
    a: Params,
    b: Params,
    data: ClientData,
    *,
    t: Positions = GRID,
    **options: Unpack[Options],
) -> Line:
    """Metrics along the line from `a` to `b`.

    Args:
      task: the model.
      a, b: parameters of one model, or stacked over C clients.
      data: the examples of one client, or of C clients, each for its own line.
        `landscape.pooled` makes one client of many.
      t: ascending positions on the line; 0 is a, 1 is b, and values beyond are allowed.
      options: see `Options`.

    Returns:
      Metrics f32[C, T] if anything is stacked, else f32[T]; NaN for clients without
      examples.

    Raises:
      ValueError: the shapes are not those of this task or do not agree, `t` does not
        ascend, or `train` is missing.
    """
    positions = check_ascending(t)
    weights = np.stack([1 - positions, positions], 1)
    metrics = evaluate_mixtures(task, {"a": a, "b": b}, weights, data, **options)
    return Line(t=positions, metrics=metrics)


def evaluate_mixtures(
    task: Task,
    models: Mapping[str, Params],
    weights: np.ndarray,
    data: ClientData,
    *,
    statistics: str = "recompute",
    train: ClientData | None = None,
    batch_size: int = 10,
    keep: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Metrics of sums of n models by weights [P, n], f32[P] or f32[C, P]; see `line`.

    `keep` bool[P] says which sums keep their running statistics; None for those that
    are one of the models.

    Raises:
      ValueError: as in `line`, or the weights have another shape.
    """
    stacked.check_whole("batch_size", batch_size, 1)
    shape = np.shape(weights)
    if len(shape) != 2 or shape[1] != len(models):
        raise ValueError(
            f"weights have shape {shape}, expected (P, {len(models)}), one for each of "
            f"{', '.join(models)}"
        )
    if statistics == "repair" and (keep is not None or not _is_convex(weights)):
        raise ValueError(
            "statistics is 'repair', which is for t from 0 to 1 of a line; choose mix"
        )
    how = batch_statistics.choose(task, statistics, train)
    examples = (data,) if how is None or train is None else (data, train)
    is_stacked = stacked.find_stacked(task, models, *examples)
    if keep is None:
        keep = ((weights == 1) | (weights == 0)).all(1) & (weights.sum(1) == 1)
    # On the host, before tracing: the number of examples at once shapes the program.
    most_examples = int(np.max(data.size, initial=1))
    arguments = (
        task.predict,
        how,
        tuple(models.values()),
        examples,
        (np.asarray(weights, np.float32), keep),
        is_stacked,
        batch_size,
        even_passes(most_examples, batch_size),
    )
    return jax.device_get(stacked.call(_evaluate_mixtures, arguments))


def _is_convex(weights: np.ndarray) -> bool:
    return weights.min() >= 0 and np.allclose(weights.sum(1), 1)


def between(
    task: Task,
    a: Params,
    b: Params,
    data: ClientData,
    *,
    batch_size: int = 10,
) -> Between:
    """How two models differ on `data`; the arguments are those of `line`.

    The ensemble adds logits. Its accuracy is that of their mean, and its loss is that
    of a sharper distribution.
    """
    is_stacked = stacked.find_stacked(task, {"a": a, "b": b}, data)
    stacked.check_whole("batch_size", batch_size, 1)
    arguments = (task.predict, (a, b), data, is_stacked, batch_size)
    return Between(**jax.device_get(stacked.call(_compare, arguments)))


# Jitted once for all tasks: `predict` is part of the cache key, so that equal shapes of
# one task are never traced again.
@partial(jax.jit, static_argnums=(0, 1, 5, 6, 7, 8))
def _evaluate_mixtures(
    predict, how, models, examples, points, is_stacked, batch_size, at_once, width
):
    """Metrics f32[P], or f32[C, P] if anything is stacked.

    `examples` are those to evaluate on, and those for running statistics unless `how`
    is None. `points` are weights f32[P, n], and which points keep their statistics.
    """

    def evaluate_client(*parts):
        models = parts[: -len(examples)]
        data, *train = parts[-len(examples) :]
        mix = batch_statistics.mix(how, predict, models, *train)

        def evaluate(point):
            model, own = mix(*point)
            metrics = score(own, data, batch_size, at_once)
            return stacked.or_nan(model, metrics)

        # One model at a time: a vmap would hold all P models in memory.
        return jax.lax.map(evaluate, points)

    return stacked.over_models(evaluate_client, (*models, *examples), is_stacked, width)


@partial(jax.jit, static_argnames=("predict", "is_stacked", "batch_size", "width"))
def _compare(predict, models, data, is_stacked, batch_size, width):
    """The fields of `Between`."""

    def compare(*parts):
        *models, data = parts

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

    return stacked.over_models(compare, (*models, data), is_stacked, width)


def _total_variation(
    both_logits: Callable[[Batch], tuple[Array, ...]],
    data: ClientData,
    batch_size: int,
) -> Array:
    """Mean over a client's examples of 1/2 sum |p - q|; NaN if it has none."""
    at_once = rows_per_pass(batch_size)

    def add(index: Array, total: Array) -> Array:
        parts = in_batches(take_batch(data, index, at_once), batch_size)
        logits = jax.vmap(both_logits)(parts)
        p, q = (jax.nn.softmax(y.astype(jnp.float32)) for y in logits)
        by_example = jnp.abs(p - q).sum(-1)
        return total + jnp.sum(parts.mask * by_example) / 2

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
    """Positions on a line or an axis, f32[T]; an error message calls them `name`.

    Raises:
      ValueError: they do not ascend.
    """
    positions = np.asarray(t, np.float32)
    is_list = positions.ndim == 1 and len(positions) > 0
    if not is_list or not (np.diff(positions) > 0).all():
        raise ValueError(f"{name} is {t}, expected ascending numbers such as {GRID}")
    return positions
