"""Metrics on a grid of a plane of models, as one compiled program."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from pfljax.core import tree
from pfljax.core.types import Array, ClientData, Key, Params, Task
from pfljax.landscape.lines import Places, ascending, judge
from pfljax.landscape.stacked import alike, count
from pfljax.models.kernel_layout import outputs_first

Mark = tuple[Any, Any]  # (alpha, beta) of a model; each f32[C] where clients differ


class Frame(NamedTuple):
    """A plane of parameters, center + alpha u + beta v."""

    center: Params  # of one model, or stacked [C, ...]; so are u and v
    u: Params
    v: Params
    marks: dict[str, Mark]  # of the models that span it
    stacked: bool = False  # whether center, u or v is


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
      a, b, c: one model each; with `stacked`, each of C clients, [C, ...]. A client
        whose models lie on one line has axes, and then metrics but at a, that are NaN.

    Raises:
      ValueError: the models, those of all clients if stacked, lie on one line, or have
        different shapes.
    """
    alike({"a": a, "b": b, "c": c}, stacked)
    u, v, along = (jax.vmap(_axes) if stacked else _axes)(a, b, c)
    if np.isnan(along).all():
        raise ValueError(
            "the three models lie on one line, or are not finite"
            f"{', of every client' * stacked}; give others, or judge a line"
        )
    place = np.asarray(along) if stacked else float(along)
    marks = {"a": (0.0, 0.0), "b": (place, 1.0), "c": (1.0, 0.0)}
    return Frame(a, u, v, marks, stacked)


def _axes(a: Params, b: Params, c: Params) -> tuple[Params, Params, Array]:
    """(u, v, alpha of b); NaN if b is not beside the line from a to c."""
    u, other = tree.sub(c, a), tree.sub(b, a)
    length, size = tree.square_norm(u), tree.square_norm(a)
    along = tree.dot(other, u) / jnp.maximum(length, 1e-30)
    v = tree.axpy(-along, u, other)
    least = 1e-12 * tree.square_norm(other) + 1e-14 * size  # that rounding leaves
    spread = (tree.square_norm(v) > least) & (length > 1e-14 * size)
    u, v = (tree.scale(axis, jnp.where(spread, 1.0, jnp.nan)) for axis in (u, v))
    return u, v, jnp.where(spread, along, jnp.nan)


def around(center: Params, u: Params, v: Params, *, stacked: bool = False) -> Frame:
    """The plane of two directions from a model: random ones, or Hessian eigenvectors.

    An eigenvector has norm 1; scale it to see far. With `stacked`, of C clients: one of
    the three at least is stacked, [C, ...], the others are shared.
    """
    return Frame(center, u, v, {"center": (0.0, 0.0)}, stacked)


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
      ValueError: there are too few models, or another number of names, or a model has
        diverged.
    """
    number = len(jax.tree.leaves(models)[0])
    if number < 3 or len(names) != number:
        raise ValueError(
            f"{number} models and {len(names)} names; expected 3 models or more, and "
            "as many names"
        )
    center = jax.tree.map(lambda leaf: np.asarray(leaf[-1]), models)
    apart = jax.tree.map(lambda leaf, last: np.asarray(leaf) - last, models, center)
    flat = np.concatenate(
        [leaf.reshape(number, -1) for leaf in jax.tree.leaves(apart)], 1
    ).astype(np.float64)
    if not np.isfinite(flat).all():
        raise ValueError("a model is not finite; give those before the run diverged")
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


def random_direction(
    key: Key, params: Params, network: nn.Module | None = None, *, stacked: bool = False
) -> Params:
    """A Gaussian direction with the norm of `params`, filter by filter.

    A filter is all that leads to one output. Vectors (biases, and the scales of
    normalisation) do not move. Li et al., NeurIPS 2018,
    https://arxiv.org/abs/1712.09913 (Section 4).

    Args:
      key: of the draw; all clients share it.
      params: one model, or with `stacked` those of C clients, [C, ...].
      network: its layers, `Finished.network` or as `models.task` was given them: they
        tell which parameters have their outputs first (`models.Linear`, `models.LSTM`).
        None: all have them last, as Flax's own layers.
      stacked: normalise each client's.

    Raises:
      ValueError: the network is another's, or params are not stacked.
    """
    alike({"params": params}, stacked)
    first = set() if network is None else outputs_first(network)
    paths = tree.paths(params)
    if others := first - set(paths):
        raise ValueError(
            f"params lack {', '.join(sorted(others))} of the network; give the network "
            "whose parameters they are"
        )
    found = []
    for each, path in zip(jax.random.split(key, len(paths)), paths, strict=True):
        draw = partial(_filterwise, each, outputs=0 if path in first else -1)
        found.append((jax.vmap(draw) if stacked else draw)(paths[path]))
    return jax.tree.unflatten(jax.tree.structure(params), found)


def _filterwise(key: Key, leaf: Array, outputs: int) -> Array:
    """A direction of one parameter, whose outputs lie along the axis `outputs`."""
    if leaf.ndim < 2:
        return jnp.zeros_like(leaf)
    drawn = jax.random.normal(key, leaf.shape, leaf.dtype)
    axes = tuple(axis for axis in range(leaf.ndim) if axis != outputs % leaf.ndim)
    own, its = (jnp.sqrt(jnp.square(a).sum(axes, keepdims=True)) for a in (leaf, drawn))
    return drawn * own / jnp.maximum(its, 1e-12)


def plane(
    task: Task,
    frame: Frame,
    data: ClientData,
    *,
    alpha: Places,
    beta: Places,
    batch_size: int = 10,
    chunk: int | None = None,
) -> Plane:
    """Metrics of the models center + alpha u + beta v.

    Args:
      task: the model.
      frame: the plane: `through` three models, or `around` one; of one, or stacked.
      data: rows of one client, or of C, each for its own plane; `pooled` makes the rows
        of all those of one.
      alpha, beta: places on the two axes, ascending.
      batch_size, chunk: as of `line`.

    Raises:
      ValueError: shapes that are not this task's or do not go together.
    """
    a, b = ascending(alpha, "alpha"), ascending(beta, "beta")
    models = {"center": frame.center, "u": frame.u, "v": frame.v}
    several = any(count(task, model, name) for name, model in models.items())
    if several != frame.stacked:
        raise ValueError(
            f"the frame was made with stacked={frame.stacked}, but its models are"
            f"{' not' * frame.stacked} stacked over clients; give `through` or "
            f"`around` stacked={several}"
        )
    places = np.stack(np.meshgrid(a, b, indexing="ij"), -1).reshape(-1, 2)
    weights = np.insert(places, 0, 1, axis=1)
    found = judge(task, models, weights, data, batch_size, chunk)
    metrics = {
        name: values.reshape(*values.shape[:-1], len(a), len(b))
        for name, values in found.items()
    }
    return Plane(a, b, metrics, frame.marks)


def penalty(
    frame: Frame, *, alpha: Places, beta: Places, form: str = "squared"
) -> np.ndarray:
    """The regulariser on a plane: add decay / 2 times it to the loss.

    f64[A, B]; f64[C, A, B] of a stacked frame.

    "squared" is ||p||^2. "norm" is the sum over tensors of ||p||, un-squared, as in the
    code of Garipov et al.

    Raises:
      ValueError: the form is unknown, or alpha or beta does not ascend.
    """
    if form not in ("squared", "norm"):
        raise ValueError(f"form is {form!r}; known: squared, norm")
    leaves = zip(*map(jax.tree.leaves, frame[:3]), strict=True)
    axes = ascending(alpha, "alpha"), ascending(beta, "beta")
    a, b = np.meshgrid(*axes, indexing="ij")
    place = np.stack([np.ones_like(a), a, b], -1).astype(np.float64)
    total: Any = 0.0
    for parts in leaves:
        clients = max(np.ndim(part) for part in parts) if frame.stacked else np.inf
        flat = [  # [C, D], or [1, D] of what is shared
            np.reshape(part, (len(part) if np.ndim(part) == clients else 1, -1))
            for part in parts
        ]
        own = np.stack(np.broadcast_arrays(*flat), 1).astype(np.float64)
        gram = own @ own.swapaxes(1, 2)
        square = np.einsum("abi,cij,abj->cab", place, gram, place)
        total += square if form == "squared" else np.sqrt(np.maximum(square, 0))
    return total if frame.stacked else total[0]


def pooled(data: ClientData) -> ClientData:
    """The rows of all clients as those of one: no client is padded to whole batches.

    If all clients share the very same rows, they count once: a mean is the same.
    """
    spans = [*zip(np.ravel(data.offset), np.ravel(data.size), strict=True)]
    spans = spans[:1] if len(set(spans)) == 1 else spans
    rows = np.concatenate([offset + np.arange(size) for offset, size in spans])
    examples = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], data.examples)
    return ClientData(examples, jnp.int32(0), jnp.int32(len(rows)))
