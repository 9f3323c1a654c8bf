"""Lines between all pairs of stacked client models, as one compiled program.

The ends of all lines are K models: each is judged once, and not for every pair.
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
    chunk: int | None = None,
) -> Pairs:
    """Metrics along the K (K - 1) / 2 lines between K models, cosines and distances.

    Args:
      task: the model.
      models: parameters stacked over K clients.
      data: the rows of one client, `landscape.pooled` ones say, on which all lines are
        judged; or those of the K clients: then a line is judged on its two clients'
        rows together, as if one client held them.
      points: T, even places from 0 to 1; 3 are the ends and the midpoint.
      batch_size: of the batchwise calibration errors.
      chunk: lines judged at once; None: 1 on a CPU, else as many as fit.

    Raises:
      ValueError: the models are not K stacked ones of this task, `data` is of another
        number of clients, or there are fewer than 3 points.
    """
    each = stacked.count_all(task, {"models": models}, data)
    if not each[0]:
        raise ValueError("models is one model, expected K stacked along a first axis")
    stacked.at_least("batch_size", batch_size, 1)
    if points < 3:
        raise ValueError(
            f"points is {points}; expected 3 or more: the two ends and one between"
        )
    t = np.linspace(0, 1, points, dtype=np.float32)
    size = len(jax.tree.leaves(models)[0])
    i, j = np.triu_indices(size)
    rows = np.stack([i, j], 1) if each[1] else np.zeros((len(i), 1), int)
    data = data._replace(offset=data.offset.reshape(-1), size=data.size.reshape(-1))
    given = task.predict, models, data, i, j, rows, t[1:-1], batch_size
    found, cosines, distances = jax.device_get(stacked.call(_program, given, chunk))
    metrics = {name: _square(i, j, values) for name, values in found.items()}
    return Pairs(Line(t, metrics), _square(i, j, cosines), _square(i, j, distances))


@partial(jax.jit, static_argnames=("predict", "batch_size", "width"))
def _program(predict, models, data, i, j, rows, inner, batch_size, width):
    """(metrics f32[P, T], cosines f32[P], distances f32[P]) of P pairs (i, j).

    `rows` i32[P, R] are the clients on whose rows a pair is judged.
    """

    def judged(model, k):
        own = ClientData(data.examples, data.offset[k], data.size[k])
        found = totals(partial(predict, model), own, batch_size)
        return stacked.if_finite(model, found)

    def end(i, k):
        return judged(tree.take(models, i), k)

    def pair(i, j, rows):
        a, b = tree.take(models, i), tree.take(models, j)

        def at(t):
            model = tree.lerp(a, b, t)
            return _sum(jax.lax.map(lambda k: judged(model, k), rows))

        return jax.lax.map(at, inner), cosine(a, b), distance(a, b)

    size, clients = jax.tree.leaves(models)[0].shape[0], data.size.shape[0]
    model, client = (x.ravel() for x in jnp.indices((size, clients)))
    ends = chunked_vmap.over_clients(end, (model, client), data.size[client], width)
    work = data.size[rows].sum(1)
    middle, cosines, distances = chunked_vmap.over_clients(
        pair, (i, j, rows), work, width
    )

    def along(ends, middle):
        ends = ends.reshape(size, clients, *ends.shape[1:])
        first, last = (ends[k[:, None], rows].sum(1)[:, None] for k in (i, j))
        return jnp.concatenate([first, middle, last], 1)

    return from_totals(jax.tree.map(along, ends, middle)), cosines, distances


def _sum(stacked_totals):
    return jax.tree.map(lambda leaf: leaf.sum(0), stacked_totals)


def _square(i: np.ndarray, j: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[K, K, ...] of values [P, ...] of pairs i <= j; [j, i] is the way back."""
    size = i.max() + 1
    full = np.empty((size, size, *values.shape[1:]), values.dtype)
    full[j, i] = values[:, ::-1] if values.ndim > 1 else values
    full[i, j] = values
    return full
