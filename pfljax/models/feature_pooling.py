"""Averages or repeats features of any width into a given width.

HtFLlib (Zhang et al., 2024, https://github.com/TsingZ0/HtFLlib) and FedAKT have torch's
`AdaptiveAvgPool1d` between bodies of several architectures and heads of one width.
"""

import jax.numpy as jnp
import numpy as np

from pfljax.core.types import Array


def pool_features(x: Array, width: int) -> Array:
    """Pools features [B, d] to [B, width].

    Column j is the mean of the features floor(j d / width) to ceil((j + 1) d / width) -
    1. Where `width` is more than d, most columns repeat one feature.
    """
    features = x.shape[-1]
    if features == width:
        return x
    # It is a product, because the gradient of a gather would be a scatter.
    return x @ _means(features, width).astype(x.dtype)


def _means(features: int, width: int) -> Array:
    """Makes f32[features, width], whose column j weighs the features in its mean."""
    column = np.arange(width)
    first = column * features // width
    behind = -(-(column + 1) * features // width)
    # They are compared within the program, which would else hold a constant matrix.
    feature = jnp.arange(features)[:, None]
    is_in_mean = (first <= feature) & (feature < behind)
    weight = np.float32(1 / (behind - first))
    return jnp.where(is_in_mean, weight, 0)
