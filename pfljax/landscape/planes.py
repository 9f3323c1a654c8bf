"""Metrics on a grid of a plane of models, as one compiled program."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import tree
from pfljax.landscape.lines import judge
from pfljax.types import Array, ClientData, Key, Params, Task

Mark = tuple[Any, Any]  # (alpha, beta) of a model; each f32[C] where clients differ


class Frame(NamedTuple):
    """A plane of parameters, center + alpha u + beta v."""

    center: Params  # of one model, or stacked [C, ...]; so are u and v
    u: Params
    v: Params
    marks: dict[str, Mark]  # of the models that span it


class Plane(NamedTuple):
    """Metrics at center + alpha_i u + beta_j v."""

    alpha: np.ndarray  # f32[A]
    beta: np.ndarray  # f32[B]
    metrics: dict[str, np.ndarray]  # "loss", "accuracy": f32[A, B] or f32[C, A, B]
    marks: dict[str, Mark]  # by the models' names

    def of(self, client: int) -> "Plane":
        """One client's plane of those of C."""
        metrics = {name: values[client] for name, values in self.metrics.items()}
        marks = {
            name: tuple(
                np.ravel(place)[client * (np.ndim(place) > 0)] for place in both
            )
            for name, both in self.marks.items()
        }
        return Plane(self.alpha, self.beta, metrics, marks)


def through(a: Params, b: Params, c: Params, *, stacked: bool = False) -> Frame:
    """The plane of three models with orthogonal axes: a at (0, 0), c at (1, 0).

    u = c - a, and v is what b - a has beside it, so that b lies at beta = 1. Garipov et
    al., NeurIPS 2018, https://arxiv.org/abs/1802.10026 (Appendix A.2), whose grids go
    from -.2 to 1.2.

    Args:
      a, b, c: one model each; with `stacked`, each of C clients, [C, ...].

    Raises:
      ValueError: the models lie on one line.
    """
    u, v, along, apart = (jax.vmap(_axes) if stacked else _axes)(a, b, c)
    if not np.all(apart):
        raise ValueError(
            "the three models lie on one line; give others, or judge a line"
        )
    place = np.asarray(along) if stacked else float(along)
    return Frame(a, u, v, {"a": (0.0, 0.0), "b": (place, 1.0), "c": (1.0, 0.0)})


def _axes(a: Params, b: Params, c: Params) -> tuple[Params, Params, Array, Array]:
    """(u, v, alpha of b, whether b lies beside the line from a to c)."""
    u, other = tree.sub(c, a), tree.sub(b, a)
    along = tree.dot(other, u) / jnp.maximum(tree.square_norm(u), 1e-30)
    v, length = tree.axpy(-along, u, other), tree.square_norm(other)
    return u, v, along, (tree.square_norm(v) > 1e-12 * length) & (length > 0)


def around(center: Params, u: Params, v: Params) -> Frame:
    """The plane of two directions from a model: random ones, or Hessian eigenvectors.

    An eigenvector has norm 1; scale it to see far.
    """
    return Frame(center, u, v, {"center": (0.0, 0.0)})


def principal(models: Params, names: Sequence[str]) -> tuple[Frame, np.ndarray]:
    """The plane of a trajectory's two principal directions, and their shares, f64[2].

    From the last model, as Li et al., NeurIPS 2018, https://arxiv.org/abs/1712.09913
    (Section 7.2): the directions explain the most of the differences to it, and the
    shares tell how much. Marks are the models' projections, by name; the farthest on
    each axis lies at 1 or -1.

    Args:
      models: R >= 3 models, stacked [R, ...], the last one the center.
      names: R names, rounds for example.

    Raises:
      ValueError: there are too few models, or another number of names.
    """
    count = len(jax.tree.leaves(models)[0])
    if count < 3 or len(names) != count:
        raise ValueError(
            f"{count} models and {len(names)} names; expected 3 models or more, and as "
            "many names"
        )
    center = jax.tree.map(lambda leaf: np.asarray(leaf[-1]), models)
    apart = jax.tree.map(lambda leaf, last: np.asarray(leaf) - last, models, center)
    flat = np.concatenate(
        [leaf.reshape(count, -1) for leaf in jax.tree.leaves(apart)], 1
    ).astype(np.float64)
    squares, vectors = np.linalg.eigh(flat @ flat.T)
    squares, vectors = squares[::-1][:2].clip(0), vectors[:, ::-1][:, :2]
    places = vectors * np.sqrt(squares)
    reach = np.maximum(np.abs(places).max(0), 1e-30)
    weights = vectors / np.sqrt(np.maximum(squares, 1e-30)) * reach
    u, v = (
        jax.tree.map(lambda leaf, w=w: np.tensordot(w, leaf, 1).astype("f4"), apart)
        for w in weights.T
    )
    marks = {n: (x, y) for n, (x, y) in zip(names, places / reach, strict=True)}
    return Frame(center, u, v, marks), squares / max((flat**2).sum(), 1e-30)


def random_direction(key: Key, params: Params) -> Params:
    """A Gaussian direction with the norm of `params`, one model's, filter by filter.

    Of stacked ones: jax.vmap(random_direction, (None, 0))(key, params).

    A filter is all that leads to one output: a slice of the last axis. Vectors (biases,
    and the scales of normalisation) do not move. Li et al., NeurIPS 2018,
    https://arxiv.org/abs/1712.09913 (Section 4).
    """
    leaves, treedef = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    found = [_filterwise(k, leaf) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(treedef, found)


def _filterwise(key: Key, leaf: Array) -> Array:
    if leaf.ndim < 2:
        return jnp.zeros_like(leaf)
    drawn = jax.random.normal(key, leaf.shape, leaf.dtype)
    axes = tuple(range(leaf.ndim - 1))
    own, its = (jnp.sqrt(jnp.square(a).sum(axes)) for a in (leaf, drawn))
    return drawn * own / jnp.maximum(its, 1e-12)


def plane(
    task: Task,
    frame: Frame,
    data: ClientData,
    *,
    alpha: Sequence[float] | np.ndarray,
    beta: Sequence[float] | np.ndarray,
    batch_size: int = 10,
    chunk: int | None = None,
) -> Plane:
    """Metrics of the models center + alpha u + beta v.

    Args:
      task: the model.
      frame: the plane: `through` three models, or `around` one; of one, or stacked.
      data: rows of one client, or of C, each for its own plane; `pooled` makes the rows
        of all those of one.
      alpha, beta: places on the two axes.
      batch_size, chunk: as of `line`.

    Raises:
      ValueError: shapes that are not this task's or do not go together.
    """
    center, u, v, marks = frame
    a, b = (np.asarray(axis, np.float32) for axis in (alpha, beta))
    places = np.stack(np.meshgrid(a, b, indexing="ij"), -1).reshape(-1, 2)
    weights = np.insert(places, 0, 1, axis=1)
    models = {"center": center, "u": u, "v": v}
    found = judge(task, models, weights, data, batch_size, chunk)
    metrics = {
        name: values.reshape(*values.shape[:-1], len(a), len(b))
        for name, values in found.items()
    }
    return Plane(a, b, metrics, marks)


def penalty(
    frame: Frame,
    *,
    alpha: Sequence[float] | np.ndarray,
    beta: Sequence[float] | np.ndarray,
    form: str = "squared",
) -> np.ndarray:
    """The regulariser on a plane, f64[A, B]: add decay / 2 times it to the loss.

    "squared" is ||p||^2. "norm" is the sum over tensors of ||p||, un-squared, as in the
    code of Garipov et al.

    Raises:
      ValueError: the form is unknown.
    """
    if form not in ("squared", "norm"):
        raise ValueError(f"form is {form!r}; known: squared, norm")
    leaves = zip(*map(jax.tree.leaves, frame[:3]), strict=True)
    a, b = np.meshgrid(np.asarray(alpha), np.asarray(beta), indexing="ij")
    place = np.stack([np.ones_like(a), a, b], -1).astype(np.float64)
    total = np.zeros(a.shape)
    for parts in leaves:
        flat = np.stack([np.asarray(part, np.float64).ravel() for part in parts])
        square = np.einsum("abi,ij,abj->ab", place, flat @ flat.T, place)
        total += square if form == "squared" else np.sqrt(np.maximum(square, 0))
    return total


def pooled(data: ClientData) -> ClientData:
    """The rows of all clients as those of one: no client is padded to whole batches."""
    spans = zip(np.ravel(data.offset), np.ravel(data.size), strict=True)
    rows = np.concatenate([offset + np.arange(size) for offset, size in spans])
    examples = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], data.examples)
    return ClientData(examples, jnp.int32(0), jnp.int32(len(rows)))
