"""Compressors that send few bits for each coordinate. All but `sign` are unbiased.

Bits are counted for a code of fixed length. The arithmetic and Elias codes of the
papers are shorter if most coordinates round to zero, but depend on the values.
"""

import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from pfljax.channel.base import Channel
from pfljax.channel.compressing import Compressor, compressing
from pfljax.core.factories import component
from pfljax.core.ranges import INT32, AtLeastOne, Range
from pfljax.core.types import Array, Key

Levels = Annotated[int, Range(lambda value: value >= 2, "at least 2"), INT32]
TINY = jnp.finfo(jnp.float32).tiny
CLIPPED = 2.5  # standard deviations, of TernGrad


@component
def uniform(*, levels: Levels = 16) -> Channel:
    """Rounds each leaf at random to `levels` values between its minimum and maximum.

    Suresh et al., ICML 2017, https://arxiv.org/abs/1611.00429, section 2.2. A leaf of d
    coordinates takes d log2 levels + 64 bits.

    Args:
      levels: number of values, the minimum and the maximum among them.
    """

    def compress_leaf(key: Key, leaf: Array) -> Array:
        least = leaf.min()
        step = (leaf.max() - least) / (levels - 1)
        number = round_at_random(key, (leaf - least) / jnp.maximum(step, TINY))
        return least + number * step

    def bits(leaf: Any) -> float:
        return math.prod(leaf.shape) * math.log2(levels) + 64

    return compressing(Compressor(compress_leaf, bits), feedback=False)


@component
def qsgd(*, levels: AtLeastOne = 8) -> Channel:
    """Sends signs, and |x| / norm rounded at random to multiples of 1 / `levels`.

    Alistarh et al., NeurIPS 2017, https://arxiv.org/abs/1610.02132, section 3.1. A leaf
    of d coordinates takes d * log2(2 * levels + 1) + 32 bits.

    Args:
      levels: number of values of |x| / norm, without 0.
    """

    def compress_leaf(key: Key, leaf: Array) -> Array:
        magnitude = jnp.abs(leaf)
        # It is scaled by its largest value, since squares of small numbers would be 0.
        largest = jnp.maximum(magnitude.max(), TINY)
        scaled = leaf / largest
        norm = largest * jnp.linalg.norm(scaled.ravel())
        share = magnitude / jnp.maximum(norm, TINY)
        number = round_at_random(key, share * levels)
        return norm * jnp.sign(leaf) * (number / levels)

    def bits(leaf: Any) -> float:
        return math.prod(leaf.shape) * math.log2(2 * levels + 1) + 32

    return compressing(Compressor(compress_leaf, bits), feedback=False)


@component
def terngrad() -> Channel:
    """Sends s * sign(x) with probability |x| / s, else 0; s is a leaf's largest |x|.

    Wen et al., NeurIPS 2017, https://arxiv.org/abs/1705.07878. Before that, a leaf is
    clipped at 2.5 standard deviations. A leaf of d coordinates takes d log2 3 + 32
    bits.
    """

    def compress_leaf(key: Key, leaf: Array) -> Array:
        deviation = leaf.std()
        # If all coordinates are equal, the deviation is 0, and none is clipped.
        limit = jnp.where(deviation > 0, CLIPPED * deviation, jnp.inf)
        leaf = jnp.clip(leaf, -limit, limit)
        largest = jnp.abs(leaf).max()
        number = round_at_random(key, jnp.abs(leaf) / jnp.maximum(largest, TINY))
        return largest * jnp.sign(leaf) * number

    def bits(leaf: Any) -> float:
        return math.prod(leaf.shape) * math.log2(3) + 32

    return compressing(Compressor(compress_leaf, bits), feedback=False)


@component
def sign(*, feedback: bool = True) -> Channel:
    """Sends each leaf's signs times its mean |x|, with error feedback.

    EF-signSGD: Karimireddy et al., ICML 2019, https://arxiv.org/abs/1901.09847,
    Algorithm 1. A leaf of d coordinates takes d + 32 bits.

    Args:
      feedback: whether the error of a round is added to the change of the next one.
    """

    def compress_leaf(key: Key, leaf: Array) -> Array:
        # One bit for each coordinate: 0 has a sign as well.
        signs = jnp.where(leaf < 0, -1, 1)
        return jnp.abs(leaf).mean() * signs

    def bits(leaf: Any) -> float:
        return math.prod(leaf.shape) + 32

    return compressing(Compressor(compress_leaf, bits), feedback)


def round_at_random(key: Key, x: Array) -> Array:
    """x >= 0 rounded down or up at random, so that the mean is x."""
    below = jnp.floor(x)
    return below + (jax.random.uniform(key, x.shape) < x - below)
