"""Planes of parameters: through three models, around one, along a trajectory."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from pfljax.core import tree
from pfljax.core.types import Array, Key, Params
from pfljax.models.kernel_layout import outputs_first

Mark = tuple[Any, Any]  # (alpha, beta) of a model; each f32[C] where clients differ


class Frame(NamedTuple):
    """A plane of parameters, center + alpha u + beta v."""

    center: Params  # of one model, or stacked [C, ...]; so are u and v
    u: Params
    v: Params
    marks: dict[str, Mark]  # of the models that span it
    stacked: bool = False  # whether center, u or v is


def through(
    a: Params,
    b: Params,
    c: Params,
    *,
    stacked: bool = False,
    names: tuple[str, str, str] = ("a", "b", "c"),
) -> Frame:
    """The plane of three models with orthogonal axes: a at (0, 0), c at (1, 0).

    u = c - a, and v is what b - a has beside it, so that b lies at beta = 1. Garipov et
    al., NeurIPS 2018, https://arxiv.org/abs/1802.10026 (Appendix A.2), whose grids go
    from -.2 to 1.2.

    Args:
      a, b, c: one model each; with `stacked`, each of C clients, [C, ...]. A client
        whose models lie on one line has axes, and then metrics but at a, that are NaN.
      stacked: whether they are of C clients.
      names: what figures call the three models.

    Raises:
      ValueError: the models, those of all clients if stacked, lie on one line.
    """
    axes = jax.vmap(_orthogonal_axes) if stacked else _orthogonal_axes
    u, v, alpha = axes(a, b, c)
    if np.isnan(alpha).all():
        raise ValueError(
            "the three models lie on one line, or are not finite"
            f"{', of every client' if stacked else ''}; give others, or judge a line"
        )
    alpha_of_b = np.asarray(alpha) if stacked else float(alpha)
    places = ((0.0, 0.0), (alpha_of_b, 1.0), (1.0, 0.0))
    marks = dict(zip(names, places, strict=True))
    return Frame(
        center=a,
        u=u,
        v=v,
        marks=marks,
        stacked=stacked,
    )


def _orthogonal_axes(a: Params, b: Params, c: Params) -> tuple[Params, Params, Array]:
    """(u, v, alpha of b); NaN if b is not beside the line from a to c."""
    u = tree.sub(c, a)
    b_from_a = tree.sub(b, a)
    u_square = tree.square_norm(u)
    a_square = tree.square_norm(a)
    # Gram and Schmidt: v is b - a less its projection on u.
    alpha = tree.dot(b_from_a, u) / jnp.maximum(u_square, 1e-30)
    v = tree.axpy(-alpha, u, b_from_a)
    # Rounding leaves about 1e-7 of a vector's length, so 1e-14 of its square.
    rounding = 1e-12 * tree.square_norm(b_from_a) + 1e-14 * a_square
    v_is_long = tree.square_norm(v) > rounding
    u_is_long = u_square > 1e-14 * a_square
    spans = v_is_long & u_is_long
    one_or_nan = jnp.where(spans, 1.0, jnp.nan)
    return (
        tree.scale(u, one_or_nan),
        tree.scale(v, one_or_nan),
        jnp.where(spans, alpha, jnp.nan),
    )


def around(center: Params, u: Params, v: Params, *, stacked: bool = False) -> Frame:
    """The plane of two directions from a model: random ones, or Hessian eigenvectors.

    An eigenvector has norm 1; scale it to see far. With `stacked`, of C clients: one of
    the three at least is stacked, [C, ...], the others are shared.
    """
    marks = {"center": (0.0, 0.0)}
    return Frame(
        center=center,
        u=u,
        v=v,
        marks=marks,
        stacked=stacked,
    )


def principal(models: Params, names: Sequence[str]) -> tuple[Frame, np.ndarray]:
    """The plane of a trajectory's two principal directions, and their shares, f64[2].

    From the last model, as Li et al., NeurIPS 2018, https://arxiv.org/abs/1712.09913
    (Section 7.2): the directions explain the most of the differences to it, and the
    shares say how much. Marks are the models' projections, by name; the farthest on
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
    differences = jax.tree.map(_difference, models, center)
    rows = _flat(differences, number)
    if not np.isfinite(rows).all():
        raise ValueError("a model is not finite; give those before the run diverged")
    squares, vectors = _leading_two(rows)
    projections = vectors * np.sqrt(squares)
    # Directions of unit norm, as sums of the models, and then as long as the farthest.
    farthest = np.abs(projections).max(0)
    reach = np.maximum(farthest, 1e-30)
    norms = np.sqrt(np.maximum(squares, 1e-30))
    u_weights, v_weights = (vectors / norms * reach).T
    positions = projections / reach
    marks: dict[str, Mark] = {}
    for name, (alpha, beta) in zip(names, positions, strict=True):
        marks[name] = (alpha, beta)
    total = max((rows**2).sum(), 1e-30)
    frame = Frame(
        center=center,
        u=_combine(differences, u_weights),
        v=_combine(differences, v_weights),
        marks=marks,
    )
    return frame, squares / total


def _difference(leaf: Array, last: np.ndarray) -> np.ndarray:
    """Each model's difference to the last one."""
    return np.asarray(leaf) - last


def _leading_two(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(squares f64[2], left vectors f64[R, 2]) of the two greatest singular values."""
    # R is small beside the number of parameters: the Gram matrix [R, R] has the same
    # eigenvalues as the covariance of the parameters.
    gram = rows @ rows.T
    squares, vectors = np.linalg.eigh(gram)
    # `eigh` ascends: the leading two are the last; rounding may leave them below 0.
    leading = squares[::-1][:2]
    return leading.clip(0), vectors[:, ::-1][:, :2]


def _flat(models: Params, number: int) -> np.ndarray:
    """The parameters of each model as one row, f64[R, D]."""
    rows = []
    for leaf in jax.tree.leaves(models):
        rows.append(leaf.reshape(number, -1))
    # In float64: squares of small differences are summed over all parameters.
    return np.concatenate(rows, axis=1).astype(np.float64)


def _combine(models: Params, weights: np.ndarray) -> Params:
    """The sum of stacked models by weights [R], in float32."""

    def combine(leaf: np.ndarray) -> np.ndarray:
        return np.tensordot(weights, leaf, 1).astype(np.float32)

    return jax.tree.map(combine, models)


def random_direction(
    key: Key,
    params: Params,
    network: nn.Module | None = None,
    *,
    stacked: bool = False,
) -> Params:
    """A Gaussian direction with the norm of `params`, filter by filter.

    A filter is all that leads to one output. Vectors (biases, and the scales of
    normalisation) do not move. Li et al., NeurIPS 2018,
    https://arxiv.org/abs/1712.09913 (Section 4).

    Args:
      key: of the draw; all clients share it.
      params: one model, or with `stacked` those of C clients, [C, ...].
      network: its layers, `Finished.network` or as `models.task` was given them: they
        say which parameters have their outputs first (`models.Linear`, `models.LSTM`).
        None: all have them last, as Flax's own layers.
      stacked: normalise each client's.

    Raises:
      ValueError: the network is another's.
    """
    outputs_are_first = set() if network is None else outputs_first(network)
    leaves = tree.paths(params)
    if unknown := outputs_are_first - set(leaves):
        raise ValueError(
            f"params lack {', '.join(sorted(unknown))} of the network; give the "
            "network whose parameters they are"
        )
    directions = []
    keys = jax.random.split(key, len(leaves))
    for leaf_key, (path, leaf) in zip(keys, leaves.items(), strict=True):
        outputs = 0 if path in outputs_are_first else -1
        draw = partial(_filterwise, leaf_key, outputs=outputs)
        # All clients share the draw; only the norms are each client's.
        drawn = jax.vmap(draw)(leaf) if stacked else draw(leaf)
        directions.append(drawn)
    return jax.tree.unflatten(jax.tree.structure(params), directions)


def _filterwise(key: Key, leaf: Array, outputs: int) -> Array:
    """A direction of one parameter, whose outputs lie along the axis `outputs`."""
    if leaf.ndim < 2:
        return jnp.zeros_like(leaf)
    normal = jax.random.normal(key, leaf.shape, leaf.dtype)
    leaf_norm = _filter_norms(leaf, outputs)
    normal_norm = jnp.maximum(_filter_norms(normal, outputs), 1e-12)
    return normal * leaf_norm / normal_norm


def _filter_norms(leaf: Array, outputs: int) -> Array:
    """The norm of each filter, of the leaf's rank; outputs lie along one axis."""
    axes = list(range(leaf.ndim))
    # Over all that leads to an output, and not over the outputs.
    axes.pop(outputs)
    square = jnp.square(leaf).sum(tuple(axes), keepdims=True)
    return jnp.sqrt(square)
