"""Metrics on a grid of a plane of models, as one compiled program."""

from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.types import ClientData, Task
from pfljax.landscape import lines
from pfljax.landscape.frames import Frame, Mark


class Plane(NamedTuple):
    """Metrics at center + alpha_i u + beta_j v."""

    alpha: np.ndarray  # f32[A]
    beta: np.ndarray  # f32[B]
    metrics: dict[str, np.ndarray]  # "loss", "accuracy": f32[A, B] or f32[C, A, B]
    marks: dict[str, Mark]  # by the models' names


def plane(
    task: Task,
    frame: Frame,
    data: ClientData,
    *,
    alpha: lines.Positions,
    beta: lines.Positions,
    **options: Unpack[lines.Options],
) -> Plane:
    """Metrics of the models center + alpha u + beta v.

    Args:
      task: the model.
      frame: the plane: `through` three models, or `around` one.
      data: the examples of one client, or of C clients, each for its own plane.
        `pooled` makes one client of many.
      alpha, beta: ascending positions on the two axes.
      options: as in `line`; the center keeps its running statistics.

    Raises:
      ValueError: the shapes are not those of this task or do not agree, the positions
        do not ascend, or `train` is missing.
    """
    a = lines.check_ascending(alpha, "alpha")
    b = lines.check_ascending(beta, "beta")
    points = np.stack(np.meshgrid(a, b, indexing="ij"), -1).reshape(-1, 2)
    metrics = evaluate_points(task, frame, points, data, **options)
    on_grid = {
        name: values.reshape(*values.shape[:-1], len(a), len(b))
        for name, values in metrics.items()
    }
    return Plane(alpha=a, beta=b, metrics=on_grid, marks=frame.marks)


def evaluate_points(
    task: Task,
    frame: Frame,
    points: np.ndarray,
    data: ClientData,
    **options: Unpack[lines.Options],
) -> dict[str, np.ndarray]:
    """Metrics of the points (alpha, beta) [P, 2] of a plane, f32[P] or f32[C, P].

    Of the positions of `project`, they say what is lost where models are drawn on a
    plane. The other arguments are those of `plane`.
    """
    models = {"center": frame.center, "u": frame.u, "v": frame.v}
    weights = np.insert(points, 0, 1, axis=1)
    return lines.evaluate_mixtures(task, models, weights, data, **options)


def pooled(data: ClientData) -> ClientData:
    """The examples of all clients as those of one client.

    If all clients share the very same examples, such as a central test set, they count
    once.
    """
    offsets = np.ravel(data.offset)
    sizes = np.ravel(data.size)
    spans = list(zip(offsets, sizes, strict=True))
    if len(set(spans)) == 1:
        spans = spans[:1]
    indices = np.concatenate([offset + np.arange(size) for offset, size in spans])
    examples = jax.tree.map(lambda leaf: np.asarray(leaf)[indices], data.examples)
    return ClientData(
        examples=examples,
        offset=jnp.int32(0),
        size=jnp.int32(len(indices)),
    )
