"""Lines between pairs of stacked client models, as one compiled program."""

from functools import partial
from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.types import ClientData, Params, Task
from pfljax.engine import chunked_vmap
from pfljax.evaluation.metrics import from_totals, totals
from pfljax.evaluation.over_clients import GRID
from pfljax.landscape import batch_statistics, lines, stacked


class Pairs(NamedTuple):
    """Between K models; [i, j] goes from model i to model j."""

    line: lines.Line  # metrics f32[K, K, T]: barrier(pairs.line, "loss") is f64[K, K]
    cosine: np.ndarray  # f32[K, K], of the angle between the parameters
    distance: np.ndarray  # f32[K, K], L2 norm of their difference


def pairs(
    task: Task,
    models: Params,
    data: ClientData,
    *,
    points: int = 11,
    **options: Unpack[lines.Options],
) -> Pairs:
    """Metrics along the K (K - 1) / 2 lines between K models, cosines and distances.

    The diagonal has each model's own metrics. `points` is T, the number of evenly
    spaced positions from 0 to 1; the other arguments are those of `pair_lines`.

    Raises:
      ValueError: as in `pair_lines`, or there are fewer than 3 points.
    """
    stacked.check_whole("points", points, 3)
    i, j = np.triu_indices(len(jax.tree.leaves(models)[0]))
    t = np.linspace(0, 1, points)
    found = pair_lines(task, models, data, i, j, t=t, **options)
    fields = found._replace(line=found.line.metrics)
    square = jax.tree.map(partial(_square, i, j), fields)
    return square._replace(line=lines.Line(t=found.line.t, metrics=square.line))


def pair_lines(
    task: Task,
    models: Params,
    data: ClientData,
    i: np.ndarray,
    j: np.ndarray,
    *,
    t: lines.Positions = GRID,
    statistics: str = "recompute",
    train: ClientData | None = None,
    batch_size: int = 10,
) -> Pairs:
    """`Pairs` of P chosen ones, the models i[P] and j[P]: f32[P, T] and f32[P].

    Args:
      task: the model.
      models: parameters stacked over K clients.
      data: the examples of one client, on which all lines are evaluated; or those of
        the K clients: then a line is evaluated on the examples of both its clients
        together, as if one client held them.
      i, j: the two models of each pair.
      t: ascending positions on a line.
      statistics: see `Options` of lines.
      train: see there; of the K clients, if `data` is: then the running statistics
        between two models are those of both clients' examples.
      batch_size: the batch size of the batchwise calibration errors.

    Raises:
      ValueError: the models are not K stacked ones of this task, `data` or `train` is
        of another number of clients, or `t` does not ascend.
    """
    how = batch_statistics.choose(task, statistics, train, together=2)
    examples = (data,) if how is None or train is None else (data, train)
    models_stacked, *of_clients = stacked.find_stacked(
        task, {"models": models}, *examples
    )
    if not models_stacked:
        raise ValueError("models is one model, expected K stacked along a first axis")
    stacked.check_whole("batch_size", batch_size, 1)
    positions = lines.check_ascending(t)
    arguments = (
        task.predict,
        how,
        jax.tree.map(jnp.asarray, models),
        examples,
        (np.asarray(i), np.asarray(j)),
        positions,
        tuple(of_clients),
        batch_size,
    )
    found = jax.device_get(stacked.call(_evaluate_pairs, arguments))
    metrics, cosines, distances = found
    return Pairs(lines.Line(t=positions, metrics=metrics), cosines, distances)


@partial(jax.jit, static_argnums=(0, 1, 6, 7, 8))
def _evaluate_pairs(
    predict, how, models, examples, ends, t, of_clients, batch_size, width
):
    """(metrics f32[P, T], cosines f32[P], distances f32[P]) of P pairs `ends` (i, j).

    `examples` are those to evaluate on, and those for running statistics unless `how`
    is None; `of_clients` says which of them are those of K clients.
    """

    def take_spans(number, i, j):
        """The examples of the clients i and j, or of the only one, offset i32[R]."""
        data = examples[number]
        clients = jnp.stack([i, j]) if of_clients[number] else jnp.zeros(1, int)
        offset, size = (jnp.ravel(span)[clients] for span in data[1:])
        return ClientData(data.examples, offset, size)

    def evaluate_pair(i, j):
        a = tree.take(models, i)
        b = tree.take(models, j)
        data, *train = (take_spans(number, i, j) for number in range(len(examples)))
        mix = batch_statistics.mix(how, predict, (a, b), *train)

        def evaluate(t):
            model, own = mix((1 - t, t), (t == 0) | (t == 1))

            def count(span):
                return totals(own, ClientData(data.examples, *span), batch_size)

            by_client = jax.lax.map(count, data[1:])
            # Sums over examples are added before they are divided.
            sums = jax.tree.map(lambda leaf: leaf.sum(0), by_client)
            return stacked.or_nan(model, sums)

        # One after another: only the pairs of a chunk lie in memory together.
        return jax.lax.map(evaluate, t), lines.cosine(a, b), lines.distance(a, b)

    work = jax.vmap(lambda i, j: take_spans(0, i, j).size.sum())(*ends)
    sums, *apart = chunked_vmap.over_clients(evaluate_pair, ends, work, width)
    return from_totals(sums), *apart


def _square(i: np.ndarray, j: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[K, K, ...] of values [P, ...] of pairs i <= j; [j, i] is the way back."""
    num_models = i.max() + 1
    rest = values.shape[1:]
    square = np.empty((num_models, num_models, *rest), values.dtype)
    # A line is walked the other way; a cosine and a distance are the same both ways.
    square[j, i] = values[:, ::-1] if rest else values
    # Last, so that the diagonal holds the way forward.
    square[i, j] = values
    return square
