"""Planes of parameters: through three models, around one, along a trajectory."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from pfljax.core import tree
from pfljax.core.types import Array, Key, Params
from pfljax.models.kernel_layout import outputs_first

Mark = tuple[float, float]  # (alpha, beta) of a model


class Frame(NamedTuple):
    """A plane of parameters, center + alpha u + beta v.

    Where u and v are orthogonal and of norm 1, distances on the plane are true ones, in
    the L2 norm of the parameters without running statistics.
    """

    center: Params
    u: Params
    v: Params
    marks: dict[str, Mark]  # of the models that span it


class Projection(NamedTuple):
    """Models seen on a plane."""

    positions: np.ndarray  # f64[R, 2], (alpha, beta) of the nearest points of the plane
    distance: np.ndarray  # f64[R], L2 norm of what lies outside of the plane


def through(
    a: Params,
    b: Params,
    c: Params,
    *,
    names: tuple[str, str, str] = ("a", "b", "c"),
) -> Frame:
    """The plane of three models in true lengths: a at (0, 0), c on the first axis.

    u is the direction of c - a, and v that of the part of b - a that is orthogonal to
    u; both have norm 1. Garipov et al., NeurIPS 2018, https://arxiv.org/abs/1802.10026
    (Appendix A.2). Figures mark the models by their `names`; `cover` makes the axes.

    Raises:
      ValueError: the models lie on one line, or are not finite.
    """
    u = tree.sub(c, a)
    b_from_a = tree.sub(b, a)
    u_square = tree.square_norm(u)
    a_square = tree.square_norm(a)
    # Gram and Schmidt: v is b - a less its projection on u.
    alpha = tree.dot(b_from_a, u) / jnp.maximum(u_square, 1e-30)
    v = tree.axpy(-alpha, u, b_from_a)
    # Rounding leaves about 1e-7 of a vector's length, so 1e-14 of its square.
    rounding = 1e-12 * tree.square_norm(b_from_a) + 1e-14 * a_square
    if not (tree.square_norm(v) > rounding and u_square > 1e-14 * a_square):
        raise ValueError(
            "the models are equal, lie on one line, or are not finite; give others, or "
            "evaluate a line"
        )
    width = float(jnp.sqrt(u_square))
    height = float(jnp.sqrt(tree.square_norm(v)))
    positions = ((0.0, 0.0), (float(alpha) * width, height), (width, 0.0))
    return Frame(
        center=a,
        u=tree.scale(u, 1 / width),
        v=tree.scale(v, 1 / height),
        marks=dict(zip(names, positions, strict=True)),
    )


def around(center: Params, u: Params, v: Params) -> Frame:
    """The plane of two directions from a model: random ones, or Hessian eigenvectors.

    An eigenvector has norm 1; scale it to see further.
    """
    return Frame(center=center, u=u, v=v, marks={"center": (0.0, 0.0)})


def cover(
    frame: Frame, points: int, margin: float = 0.2
) -> tuple[np.ndarray, np.ndarray]:
    """The axes (alpha, beta), f64[points] each, of a square around all marks.

    `margin` is its distance from the marks, as a part of the longer side.
    """
    marks = np.array(list(frame.marks.values()), np.float64)
    low = marks.min(0)
    high = marks.max(0)
    half = (0.5 + margin) * (high - low).max()
    middle = (low + high) / 2
    alpha, beta = (np.linspace(m - half, m + half, points) for m in middle)
    return alpha, beta


def project(frame: Frame, models: Params) -> Projection:
    """The nearest points on a plane to R models, stacked [R, ...], and their distances.

    They may be the points of a curve, or the models of a trajectory.
    """
    center, u, v = (
        _flatten(jax.tree.map(lambda leaf: np.asarray(leaf)[None], model))
        for model in (frame.center, frame.u, frame.v)
    )
    basis = np.concatenate([u, v])
    differences = _flatten(models) - center
    inverse = np.linalg.pinv(basis @ basis.T, hermitian=True)
    positions = differences @ basis.T @ inverse
    outside = differences - positions @ basis
    return Projection(positions, np.linalg.norm(outside, axis=1))


def principal(models: Params, names: Sequence[str]) -> tuple[Frame, np.ndarray]:
    """The plane of a trajectory's two principal directions, and their shares, f64[2].

    The directions, of norm 1, explain most of the differences to the last model, and
    the shares say how much (Li et al., NeurIPS 2018, https://arxiv.org/abs/1712.09913,
    Section 7.2). Marks are the models' projections by name.

    Args:
      models: R >= 3 models, stacked [R, ...], the last one the center.
      names: R names, rounds for example.

    Raises:
      ValueError: there are too few models, the number of names differs, or a model has
        diverged.
    """
    number = len(jax.tree.leaves(models)[0])
    if number < 3 or len(names) != number:
        raise ValueError(
            f"got {number} models and {len(names)} names; expected 3 models or more, "
            "and as many names"
        )
    center = jax.tree.map(lambda leaf: np.asarray(leaf[-1]), models)
    differences = jax.tree.map(lambda leaf, last: leaf - last, models, center)
    vectors_by_model = _flatten(differences)
    if not np.isfinite(vectors_by_model).all():
        raise ValueError("a model is not finite; give those before the run diverged")
    # R is small beside the number of parameters: the Gram matrix [R, R] has the same
    # eigenvalues as the covariance of the parameters.
    values, singular = np.linalg.eigh(vectors_by_model @ vectors_by_model.T)
    # `eigh` ascends: the leading two are the last; rounding may leave them below 0.
    squares = values[::-1][:2].clip(0)
    vectors = singular[:, ::-1][:, :2]
    norms = np.sqrt(squares)
    # Directions of unit norm, as sums of the models.
    u_weights, v_weights = (vectors / np.maximum(norms, 1e-30)).T
    positions = vectors * norms
    total = max((vectors_by_model**2).sum(), 1e-30)
    frame = Frame(
        center=center,
        u=_combine(differences, u_weights),
        v=_combine(differences, v_weights),
        marks=dict(zip(names, map(tuple, positions), strict=True)),
    )
    return frame, squares / total


def _flatten(models: Params) -> np.ndarray:
    """R stacked models as rows without running statistics, f64[R, D]."""
    leaves = jax.tree.leaves(tree.parameters(models))
    # In float64: squares of small differences are summed over all parameters.
    rows = [np.asarray(leaf, np.float64).reshape(len(leaf), -1) for leaf in leaves]
    return np.concatenate(rows, axis=1)


def _combine(models: Params, weights: np.ndarray) -> Params:
    """The sum of stacked models by weights [R], in float32."""
    return jax.tree.map(
        lambda leaf: np.tensordot(weights, leaf, 1).astype(np.float32), models
    )


def random_direction(
    key: Key,
    params: Params,
    network: nn.Module | None = None,
) -> Params:
    """A Gaussian direction with the norm of `params`, filter by filter.

    A filter is the set of weights that lead to one output. Vectors (biases, and the
    scales of normalisation) do not move. Li et al., NeurIPS 2018,
    https://arxiv.org/abs/1712.09913 (Section 4).

    Args:
      key: for the draw.
      params: one model.
      network: its layers, such as `Finished.network`. They say which parameters have
        their outputs first (`models.Linear`, `models.LSTM`). If None, all have them
        last, as Flax's own layers do.

    Raises:
      ValueError: the parameters are not those of the network.
    """
    outputs_are_first = set() if network is None else outputs_first(network)
    leaves = tree.paths(params)
    if unknown := outputs_are_first - set(leaves):
        raise ValueError(
            f"params lack {', '.join(sorted(unknown))}; give the network whose "
            "parameters they are"
        )
    directions = []
    keys = jax.random.split(key, len(leaves))
    for leaf_key, (path, leaf) in zip(keys, leaves.items(), strict=True):
        outputs = 0 if path in outputs_are_first else -1
        directions.append(_draw_filters(leaf_key, leaf, outputs))
    return jax.tree.unflatten(jax.tree.structure(params), directions)


def _draw_filters(key: Key, leaf: Array, outputs: int) -> Array:
    """A direction of one parameter, whose outputs lie along the axis `outputs`."""
    if leaf.ndim < 2:
        return jnp.zeros_like(leaf)
    normal = jax.random.normal(key, leaf.shape, leaf.dtype)
    leaf_norm = _filter_norms(leaf, outputs)
    normal_norm = jnp.maximum(_filter_norms(normal, outputs), 1e-12)
    return normal * leaf_norm / normal_norm


def _filter_norms(leaf: Array, outputs: int) -> Array:
    """The norm of each filter, of the leaf's rank; `outputs` is the axis of outputs."""
    axes = list(range(leaf.ndim))
    axes.pop(outputs)
    square = jnp.square(leaf).sum(tuple(axes), keepdims=True)
    return jnp.sqrt(square)
