"""Dropout whose mask is a hash of the index of each element.

Threefry takes 45 ns an element on a CPU, longer than the rest of a small model's step.
"""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from pfljax.core.shuffle import mix
from pfljax.core.types import Array, Key


class Dropout(nn.Module):
    """Drops each element with probability `rate` and scales the others up.

    It is on where the module has a "dropout" key, which it has only in training mode.
    """

    rate: float

    def __call__(self, x: Array) -> Array:
        """Sets dropped elements to 0 and multiplies the others by 1 / (1 - rate)."""
        if not self.has_rng("dropout"):
            return x
        key = self.make_rng("dropout")
        kept = keep(key, x.shape, self.rate)
        scaled = x / (1 - self.rate)
        return jnp.where(kept, scaled, 0)


def keep(key: Key, shape: tuple[int, ...], rate: float) -> Array:
    """Draws bool[shape], each True with probability 1 - rate.

    Raises:
      ValueError: the rate is not in 0 <= rate < 1.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"the rate of dropout is {rate}; expected 0 <= rate < 1")
    words = jax.random.key_data(key).ravel()
    size = math.prod(shape)
    index = jax.lax.iota(jnp.uint32, size)
    # A word enters before each pass, so that the masks of two keys are no shifts of
    # each other.
    once = mix(index ^ words[0])
    bits = mix(once ^ words[1])
    # Integers are compared, because f32 has fewer bits than the hash.
    threshold = jnp.uint32(rate * 2**32)
    return (bits >= threshold).reshape(shape)
