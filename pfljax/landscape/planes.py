"""Metrics on a grid of a plane of models, as one compiled program."""

from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.types import ClientData, Params, Task
from pfljax.landscape.frames import Frame, Mark, Projection, project
from pfljax.landscape.lines import (
    Options,
    Positions,
    check_ascending,
    evaluate_mixtures,
)


class Plane(NamedTuple):
    """Metrics at center + alpha_i u + beta_j v."""

    alpha: np.ndarray  # f32[A]
    beta: np.ndarray  # f32[B]
    metrics: dict[str, np.ndarray]  # "loss", "accuracy": f32[A, B] or f32[C, A, B]
    marks: dict[str, Mark]  # by the models' names


class Marked(NamedTuple):
    """R models, and the points of a plane at which they are drawn."""

    seen: Projection  # the points, and the models' distances from the plane
    on_plane: dict[str, np.ndarray]  # metrics of the points, f32[R]
    models: dict[str, np.ndarray]  # metrics of the models themselves, f32[R]


def plane(
    task: Task,
    frame: Frame,
    data: ClientData,
    *,
    alpha: Positions,
    beta: Positions,
    **options: Unpack[Options],
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
    a = check_ascending(alpha, "alpha")
    b = check_ascending(beta, "beta")
    models = {"center": frame.center, "u": frame.u, "v": frame.v}
    weights = _grid_weights(a, b)
    metrics = evaluate_mixtures(task, models, weights, data, **options)
    on_grid = {
        name: values.reshape(*values.shape[:-1], len(a), len(b))
        for name, values in metrics.items()
    }
    return Plane(alpha=a, beta=b, metrics=on_grid, marks=frame.marks)


def compare_marks(
    task: Task,
    frame: Frame,
    models: Params,
    data: ClientData,
    **options: Unpack[Options],
) -> Marked:
    """What is lost where R models, stacked [R, ...], are drawn on a plane.

    `data` and `train` are of one client; the other arguments are those of `plane`.
    """
    seen = project(frame, models)
    spanning = {"center": frame.center, "u": frame.u, "v": frame.v}
    weights = np.insert(seen.positions, 0, 1, axis=1)
    on_plane = evaluate_mixtures(task, spanning, weights, data, **options)
    alone = evaluate_mixtures(
        task, {"models": models}, np.ones((1, 1)), data, **options
    )
    return Marked(seen, on_plane, {name: value[:, 0] for name, value in alone.items()})


def _grid_weights(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The weights of (center, u, v) at each point, alpha before beta, f32[A * B, 3]."""
    grid = np.meshgrid(a, b, indexing="ij")
    points = np.stack(grid, -1).reshape(-1, 2)
    return np.insert(points, 0, 1, axis=1)


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
