"""Metrics on a grid of a plane of models, as one compiled program."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import registry
from pfljax.core.types import ClientData, Task
from pfljax.landscape.frames import Frame, Mark
from pfljax.landscape.lines import Positions, check_ascending, evaluate_mixtures
from pfljax.landscape.stacked import num_clients

PENALTIES = ("squared", "norm")


class Plane(NamedTuple):
    """Metrics at center + alpha_i u + beta_j v."""

    alpha: np.ndarray  # f32[A]
    beta: np.ndarray  # f32[B]
    metrics: dict[str, np.ndarray]  # "loss", "accuracy": f32[A, B] or f32[C, A, B]
    marks: dict[str, Mark]  # by the models' names

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of each metric."""
        rank = next(iter(self.metrics.values())).ndim
        return (*("client",)[: rank - 2], "alpha", "beta")

    def of(self, client: int) -> "Plane":
        """One client's plane of those of C.

        Raises:
          ValueError: the plane is of one model.
        """
        for values in self.metrics.values():
            if values.ndim != 3:
                raise ValueError(
                    f"the plane has metrics of shape {values.shape}, expected [C, A, "
                    "B] of clients; it is one plane: use it as it is"
                )
        return Plane(
            alpha=self.alpha,
            beta=self.beta,
            metrics={name: values[client] for name, values in self.metrics.items()},
            marks={name: _take_mark(mark, client) for name, mark in self.marks.items()},
        )


def _take_mark(mark: Mark, client: int) -> Mark:
    """One client's (alpha, beta); a coordinate without an axis is the same for all."""
    alpha, beta = (
        np.ravel(coordinate)[client if np.ndim(coordinate) else 0]
        for coordinate in mark
    )
    return alpha, beta


def plane(
    task: Task,
    frame: Frame,
    data: ClientData,
    *,
    alpha: Positions,
    beta: Positions,
    batch_size: int = 10,
    chunk: int | None = None,
) -> Plane:
    """Metrics of the models center + alpha u + beta v.

    Args:
      task: the model.
      frame: the plane: `through` three models, or `around` one; of one, or stacked.
      data: rows of one client, or of C, each for its own plane; `pooled` makes the rows
        of all those of one.
      alpha, beta: positions on the two axes, ascending.
      batch_size, chunk: as of `line`.

    Raises:
      ValueError: shapes that are not this task's or do not go together.
    """
    a = check_ascending(alpha, "alpha")
    b = check_ascending(beta, "beta")
    models = {"center": frame.center, "u": frame.u, "v": frame.v}
    # One stacked model suffices: the others are shared by the clients.
    several = any(num_clients(task, model, name) for name, model in models.items())
    if several != frame.stacked:
        raise ValueError(
            f"the frame was made with stacked={frame.stacked}, but its models are"
            f"{' not' if frame.stacked else ''} stacked over clients; give `through` "
            f"or `around` stacked={several}"
        )
    weights = _grid_weights(a, b)
    metrics = evaluate_mixtures(
        task,
        models,
        weights,
        data,
        batch_size,
        chunk,
    )
    on_grid = {
        name: values.reshape(*values.shape[:-1], len(a), len(b))
        for name, values in metrics.items()
    }
    return Plane(
        alpha=a,
        beta=b,
        metrics=on_grid,
        marks=frame.marks,
    )


def _grid_weights(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The weights of (center, u, v) at each point, alpha before beta, f32[A * B, 3]."""
    grid = np.meshgrid(a, b, indexing="ij")
    points = np.stack(grid, -1).reshape(-1, 2)
    return np.insert(points, 0, 1, axis=1)


def penalty(
    frame: Frame,
    *,
    alpha: Positions,
    beta: Positions,
    form: str = "squared",
) -> np.ndarray:
    """The regulariser on a plane: add decay / 2 times it to the loss.

    f64[A, B]; f64[C, A, B] of a stacked frame.

    "squared" is ||p||^2. "norm" is the sum over tensors of ||p||, un-squared, as in the
    code of Garipov et al.

    Raises:
      ValueError: the form is unknown, or alpha or beta does not ascend.
    """
    registry.require_known("form", form, PENALTIES)
    alphas = check_ascending(alpha, "alpha")
    betas = check_ascending(beta, "beta")
    a, b = np.meshgrid(alphas, betas, indexing="ij")
    weights = np.stack([np.ones_like(a), a, b], -1)
    weights = weights.astype(np.float64)
    total: Any = 0.0
    tensors = map(jax.tree.leaves, (frame.center, frame.u, frame.v))
    for center_u_v in zip(*tensors, strict=True):
        vectors = _vectors(center_u_v, frame.stacked)
        # |w . (center, u, v)|^2 = w' G w: no model of the grid is ever made.
        gram = vectors @ vectors.swapaxes(1, 2)
        squares = np.einsum("abi,cij,abj->cab", weights, gram, weights)
        if form == "squared":
            total += squares
        else:
            total += np.sqrt(np.maximum(squares, 0))
    return total if frame.stacked else total[0]


def _vectors(center_u_v: tuple[Any, ...], stacked: bool) -> np.ndarray:
    """One tensor of center, u and v as vectors, f64[C, 3, D]; C is 1 if not stacked."""
    rank = max(np.ndim(tensor) for tensor in center_u_v)
    flat = []
    for tensor in center_u_v:
        # What is shared by the clients lacks their axis.
        has_clients = stacked and np.ndim(tensor) == rank
        clients = len(tensor) if has_clients else 1
        flat.append(np.reshape(tensor, (clients, -1)))
    return np.stack(np.broadcast_arrays(*flat), 1).astype(np.float64)


def pooled(data: ClientData) -> ClientData:
    """The rows of all clients as those of one: no client is padded to whole batches.

    If all clients share the very same rows, they count once: a mean is the same.
    """
    offsets = np.ravel(data.offset)
    sizes = np.ravel(data.size)
    spans = list(zip(offsets, sizes, strict=True))
    # A central test set, say, which every client is judged by.
    if len(set(spans)) == 1:
        spans = spans[:1]
    rows = np.concatenate([offset + np.arange(size) for offset, size in spans])
    examples = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], data.examples)
    return ClientData(
        examples=examples,
        offset=jnp.int32(0),
        size=jnp.int32(len(rows)),
    )
