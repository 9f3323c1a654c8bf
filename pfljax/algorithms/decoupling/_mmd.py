"""The maximum mean discrepancy between two sets of features.

Gretton et al., JMLR 2012: mean k(a, a') + mean k(b, b') - 2 mean k(a, b), over all
pairs of examples that count, where k is a sum of Gaussian kernels.
"""

import jax
import jax.numpy as jnp

from pfljax.core.types import Array, Batch

FIXED = (10.0, 15.0, 20.0, 50.0)  # a of exp(-d^2 / 2a)
RELATIVE = (0.25, 0.5, 1.0, 2.0, 4.0)  # factors of the mean squared distance


def discrepancy(a: Array, b: Array, batch: Batch, relative: bool) -> Array:
    """MMD of features a and b [B, ...] of one batch, f32[].

    Args:
      a, b: features of the same examples.
      batch: the examples, of which those with mask 1 count.
      relative: whether widths are multiples of the mean squared distance of different
        features, as a constant; otherwise they are `FIXED`.
    """
    vectors = jnp.concatenate([a, b]).reshape(2 * len(a), -1)
    # By differences: equal features have the distance 0, and its gradient is 0.
    square = jnp.sum((vectors[:, None] - vectors) ** 2, -1)
    mask = jnp.tile(batch.mask, 2)
    pairs = mask[:, None] * mask
    if relative:
        others = pairs * (1 - jnp.eye(len(pairs)))
        mean = jnp.sum(others * square) / jnp.maximum(jnp.sum(others), 1)
        mean = jnp.maximum(jax.lax.stop_gradient(mean), jnp.finfo(jnp.float32).tiny)
        widths = [factor * mean for factor in RELATIVE]
    else:
        widths = [2 * width for width in FIXED]
    kernel = sum(jnp.exp(-square / width) for width in widths)
    sign = jnp.repeat(jnp.array([1.0, -1.0]), len(a))
    count = jnp.maximum(jnp.sum(batch.mask), 1)
    return jnp.sum(pairs * sign[:, None] * sign * kernel) / count**2
