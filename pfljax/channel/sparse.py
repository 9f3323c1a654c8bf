"""Compressors that send few numbers: some coordinates, or matrices of low rank."""

import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from pfljax.channel.base import Channel
from pfljax.channel.compressing import Compressor, compressing
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Range
from pfljax.core.types import Array, Key

FLOAT = 32  # bits
Part = Annotated[float, Range(lambda value: 0 < value <= 1, "a share, 0 < share <= 1")]


@component
def top_k(*, share: Part = 0.01, feedback: bool = True) -> Channel:
    """Sends the `share` of each leaf's coordinates with the largest |x|; others are 0.

    Stich et al., NeurIPS 2018, https://arxiv.org/abs/1809.07599. k of d coordinates
    take k (32 + log2 d) bits: each has a number and its position.

    Args:
      share: share of the coordinates that are sent.
      feedback: whether the error of a round is added to the change of the next one.
    """

    def compress_leaf(key: Key, leaf: Array) -> Array:
        flat = leaf.ravel()
        _, places = jax.lax.top_k(jnp.abs(flat), _count(leaf, share))
        return _scatter(flat, places).reshape(leaf.shape)

    def bits(leaf: Any) -> float:
        places = math.log2(max(math.prod(leaf.shape), 1))
        return _count(leaf, share) * (FLOAT + places)

    return compressing(Compressor(compress_leaf, bits), feedback)


@component
def random_k(*, share: Part = 0.01, feedback: bool = False) -> Channel:
    """Sends a random `share` of each leaf's coordinates; the others are 0.

    k of d coordinates are sent times d / k, so that their mean is the change; with
    `feedback` they are sent as they are (Stich et al., NeurIPS 2018). They take 32 k
    bits, and 32 bits for a seed, from which their positions follow.

    Args:
      share: share of the coordinates that are sent.
      feedback: whether the error of a round is added to the change of the next one.
    """

    def compress_leaf(key: Key, leaf: Array) -> Array:
        flat = leaf.ravel()
        count = _count(leaf, share)
        # A permutation would sort all coordinates, which takes thirty times as long.
        _, places = jax.lax.top_k(jax.random.uniform(key, flat.shape), count)
        scale = 1 if feedback else flat.size / count
        return (scale * _scatter(flat, places)).reshape(leaf.shape)

    def bits(leaf: Any) -> float:
        return FLOAT * _count(leaf, share) + FLOAT

    return compressing(Compressor(compress_leaf, bits), feedback)


@component
def low_rank(*, rank: AtLeastOne = 2, feedback: bool = True) -> Channel:
    """Sends the nearest matrix of rank `rank` for each matrix, and vectors unchanged.

    PowerSGD (Vogels et al., NeurIPS 2019, https://arxiv.org/abs/1905.13727)
    approximates this matrix by one step of the power method, with the same error
    feedback. The kernel of a convolution is a matrix whose columns are its last axis.
    A matrix [m, n] takes 32 rank (m + n) bits.

    Args:
      rank: rank of the matrices that are sent.
      feedback: whether the error of a round is added to the change of the next one.
    """

    def compress_leaf(key: Key, leaf: Array) -> Array:
        matrix = leaf.reshape(-1, leaf.shape[-1])
        return _nearest(matrix, rank).reshape(leaf.shape)

    def bits(leaf: Any) -> float:
        if len(leaf.shape) < 2:
            return math.inf
        columns = leaf.shape[-1]
        rows = math.prod(leaf.shape[:-1])
        return FLOAT * rank * (rows + columns)

    return compressing(Compressor(compress_leaf, bits), feedback)


def _nearest(matrix: Array, rank: int) -> Array:
    """The nearest matrix of this rank.

    It is computed from the eigenvectors of the smaller of A A^T and A^T A, in a fifth
    of the time of singular values. In float32, directions below 3e-4 of the largest are
    lost in rounding: they are left out, and error feedback sends them later.
    """
    rows, columns = matrix.shape
    wide = rows < columns
    tall = matrix.T if wide else matrix
    gram = jnp.matmul(tall.T, tall, precision="highest")
    _, vectors = jnp.linalg.eigh(gram)  # the largest last
    kept = vectors[:, -rank:]
    projected = jnp.matmul(tall, kept, precision="highest")
    low = jnp.matmul(projected, kept.T, precision="highest")
    return low.T if wide else low


def _count(leaf: Any, share: float) -> int:
    """k, the number of coordinates of a leaf that are sent, at least one."""
    return max(1, round(share * math.prod(leaf.shape)))


def _scatter(flat: Array, places: Array) -> Array:
    """The vector at these positions, and 0 at all others."""
    return jnp.zeros_like(flat).at[places].set(flat[places])
