"""Centres of uploads as vectors over all leaves, by rounds of reweighting or clipping.

Reducers as those of `pfljax.core.aggregation`: of uploads stacked over M and a weight
f32[M], 0 for the absent.
"""

from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core import aggregation
from pfljax.core.aggregation import Reducer
from pfljax.core.types import Array
from pfljax.registry import AtLeastOne, Positive, checked


@checked
def geometric_median(iterations: AtLeastOne = 8, smoothing: Positive = 1e-6) -> Reducer:
    """The point of the least sum of distances, by Weiszfeld's smoothed steps.

    RFA: Pillutla et al., IEEE TSP 2022, https://arxiv.org/abs/1912.13445, Algorithm 2:

        w_i = weight_i / max(smoothing, |x_i - z|);   z <- sum_i w_i x_i / sum_i w_i
    """

    def reducer(uploads: Any, weight: Array) -> Any:
        centre = aggregation.mean(uploads, weight)
        for _ in range(iterations):
            distance = lengths(_apart(uploads, centre))
            near = weight / jnp.maximum(smoothing, distance)
            centre = aggregation.mean(uploads, near)
        return centre

    return reducer


def clipped_towards(
    centre: Any, changes: Any, weight: Array, radius: Any, iterations: int
) -> Any:
    """v <- v + mean_i (x_i - v) min(1, radius / |x_i - v|), from the centre v.

    Centred clipping: Karimireddy et al., ICML 2021, https://arxiv.org/abs/2012.10333,
    Algorithm 2.
    """
    for _ in range(iterations):
        apart = _apart(changes, centre)
        step = aggregation.mean(shortened(apart, radius), weight)
        centre = jax.tree.map(jnp.add, centre, step)
    return centre


def shortened(changes: Any, norm: Any) -> Any:
    """Each change of [M, ...], scaled to at most this length."""
    length = lengths(changes)
    factor = jnp.where(length > norm, norm / jnp.maximum(length, norm), 1)

    def of_leaf(leaf: Array) -> Array:
        return leaf * factor.reshape(factor.shape + (1,) * (leaf.ndim - 1))

    return jax.tree.map(of_leaf, changes)


def lengths(stacked: Any) -> Array:
    """The L2 norm over all leaves of each upload, f32[M]."""
    squares = []
    for leaf in jax.tree.leaves(stacked):
        rows = leaf.reshape(len(leaf), -1)
        squares.append(jnp.square(rows).sum(1))
    return jnp.sqrt(sum(squares, jnp.float32(0)))


def _apart(uploads: Any, centre: Any) -> Any:
    return jax.tree.map(lambda leaf, centre: leaf - centre, uploads, centre)
