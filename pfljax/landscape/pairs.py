"""Lines between all pairs of stacked client models, as one compiled program.

The ends of all lines are K models, and each is evaluated once, not for every pair.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.types import ClientData, Params, Task
from pfljax.engine import chunked_vmap
from pfljax.evaluation.metrics import from_totals, totals
from pfljax.landscape import stacked
from pfljax.landscape.lines import Line, cosine, distance


class Pairs(NamedTuple):
    """Between K models; [i, j] goes from model i to model j."""

    line: Line  # metrics f32[K, K, T]: barrier(pairs.line, "loss") is f64[K, K]
    cosine: np.ndarray  # f32[K, K], of the angle between the parameters
    distance: np.ndarray  # f32[K, K], L2 norm of their difference


def pairs(
    task: Task,
    models: Params,
    data: ClientData,
    *,
    points: int = 3,
    batch_size: int = 10,
) -> Pairs:
    """Metrics along the K (K - 1) / 2 lines between K models, cosines and distances.

    Args:
      task: the model.
      models: parameters stacked over K clients.
      data: the examples of one client, on which all lines are evaluated; or those of
        the K clients: then a line is evaluated on the examples of both its clients
        together, as if one client held them.
      points: T, evenly spaced positions from 0 to 1; 3 are the ends and the midpoint.
      batch_size: the batch size of the batchwise calibration errors.

    Raises:
      ValueError: the models are not K stacked ones of this task, `data` is of another
        number of clients, or there are fewer than 3 points.
    """
    models_stacked, data_stacked = stacked.find_stacked(task, {"models": models}, data)
    if not models_stacked:
        raise ValueError("models is one model, expected K stacked along a first axis")
    stacked.check_whole("batch_size", batch_size, 1)
    if points < 3:
        raise ValueError(
            f"points is {points}; expected 3 or more: the two ends and one between"
        )
    t = np.linspace(0, 1, points, dtype=np.float32)
    # With the diagonal: a pair (i, i) gives its model's own metrics.
    num_models = len(jax.tree.leaves(models)[0])
    i, j = np.triu_indices(num_models)
    holders = np.zeros((len(i), 1), int)
    if data_stacked:
        holders = np.stack([i, j], 1)
    # The examples of one client get an axis of clients too: `holders` is 0 everywhere.
    data = data._replace(
        offset=data.offset.reshape(-1),
        size=data.size.reshape(-1),
    )
    arguments = (task.predict, models, data, i, j, holders, t[1:-1], batch_size)
    result = jax.device_get(stacked.call(_evaluate_pairs, arguments))
    metrics, cosines, distances = result
    squares = {name: _square(i, j, values) for name, values in metrics.items()}
    return Pairs(
        line=Line(t=t, metrics=squares),
        cosine=_square(i, j, cosines),
        distance=_square(i, j, distances),
    )


@partial(jax.jit, static_argnames=("predict", "batch_size", "width"))
def _evaluate_pairs(predict, models, data, i, j, holders, inner, batch_size, width):
    """(metrics f32[P, T], cosines f32[P], distances f32[P]) of P pairs (i, j).

    `holders` i32[P, R] are the clients on whose examples a pair is evaluated, and
    `inner` f32[T - 2] the positions between the ends.
    """

    def count_totals(model, k):
        client_data = ClientData(data.examples, data.offset[k], data.size[k])
        sums = totals(partial(predict, model), client_data, batch_size)
        return stacked.or_nan(model, sums)

    def evaluate_end(i, k):
        return count_totals(tree.take(models, i), k)

    def evaluate_pair(i, j, clients):
        a = tree.take(models, i)
        b = tree.take(models, j)

        def evaluate(t):
            by_client = jax.lax.map(partial(count_totals, tree.lerp(a, b, t)), clients)
            return jax.tree.map(lambda leaf: leaf.sum(0), by_client)

        # One after another: only the pairs of a chunk lie in memory together.
        metrics = jax.lax.map(evaluate, inner)
        return metrics, cosine(a, b), distance(a, b)

    num_models = jax.tree.leaves(models)[0].shape[0]
    num_clients = data.size.shape[0]
    # The ends: each model on the examples of each client.
    grid = jnp.indices((num_models, num_clients))
    model, client = grid.reshape(2, -1)
    end_work = data.size[client]
    ends = chunked_vmap.over_clients(evaluate_end, (model, client), end_work, width)
    pair_work = data.size[holders].sum(1)
    middle, cosines, distances = chunked_vmap.over_clients(
        evaluate_pair, (i, j, holders), pair_work, width
    )

    def join_points(ends, middle):
        ends = ends.reshape(num_models, num_clients, *ends.shape[1:])
        first = ends[i[:, None], holders].sum(1)
        last = ends[j[:, None], holders].sum(1)
        parts = [first[:, None], middle, last[:, None]]
        return jnp.concatenate(parts, axis=1)

    # Sums over examples are added before they are divided, as if one client held all.
    sums = jax.tree.map(join_points, ends, middle)
    metrics = from_totals(sums)
    return metrics, cosines, distances


def _square(i: np.ndarray, j: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[K, K, ...] of values [P, ...] of pairs i <= j; [j, i] is the way back."""
    num_models = i.max() + 1
    rest = values.shape[1:]
    square = np.empty((num_models, num_models, *rest), values.dtype)
    # A line is walked the other way; a cosine and a distance are the same both ways.
    if rest:
        square[j, i] = values[:, ::-1]
    else:
        square[j, i] = values
    # Last, so that the diagonal holds the way forward.
    square[i, j] = values
    return square
