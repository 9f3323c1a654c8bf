"""Changes of which few numbers are sent: some coordinates, or matrices of low rank."""

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

    Stich et al., NeurIPS 2018, https://arxiv.org/abs/1809.07599. k of d weigh
    k (32 + log2 d) bits: a number and its place.

    Args:
      share: of the coordinates that are sent.
      feedback: what is left out goes another time.
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

    Times d / k, so that the mean is the change; with `feedback` as they are (Stich et
    al., NeurIPS 2018). k of d weigh 32 k bits and a seed of 32, which tells the places.

    Args:
      share: of the coordinates that are sent.
      feedback: what is left out goes another time.
    """

    def compress_leaf(key: Key, leaf: Array) -> Array:
        flat = leaf.ravel()
        count = _count(leaf, share)
        # A permutation would sort all of them, which takes thirty times as long.
        _, places = jax.lax.top_k(jax.random.uniform(key, flat.shape), count)
        scale = 1 if feedback else flat.size / count
        return (scale * _scatter(flat, places)).reshape(leaf.shape)

    def bits(leaf: Any) -> float:
        return FLOAT * _count(leaf, share) + FLOAT

    return compressing(Compressor(compress_leaf, bits), feedback)


@component
def low_rank(*, rank: AtLeastOne = 2, feedback: bool = True) -> Channel:
    """Sends the nearest matrix of rank `rank` for each matrix, and vectors unchanged.

    The best approximation, which PowerSGD (Vogels et al., NeurIPS 2019,
    https://arxiv.org/abs/1905.13727) comes near with one step of the power method, and
    with its error feedback. A kernel of a convolution is the matrix of all its axes but
    the last by the last; m x n weighs 32 rank (m + n) bits.

    Args:
      rank: of the matrices that are sent.
      feedback: what is left out goes another time.
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

    By the eigenvectors of the smaller of A A^T and A^T A, in a fifth of the time of
    singular values. Float32 tells no direction below 3e-4 of the largest: what lies
    there is left out, and error feedback sends it later.
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
    """k, at least one of a leaf."""
    return max(1, round(share * math.prod(leaf.shape)))


def _scatter(flat: Array, places: Array) -> Array:
    """The vector at these places, 0 elsewhere."""
    return jnp.zeros_like(flat).at[places].set(flat[places])
