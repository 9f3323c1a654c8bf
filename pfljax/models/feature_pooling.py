"""Features of any width averaged, or repeated, into a given width: no parameters.

What HtFLlib puts between bodies of several architectures and heads of one width
(Zhang et al., 2024, https://github.com/TsingZ0/HtFLlib), and FedAKT with it: torch's
`AdaptiveAvgPool1d`.
"""

import jax.numpy as jnp
import numpy as np

from pfljax.core.types import Array


def pool_features(x: Array, width: int) -> Array:
    """Features [B, d] -> [B, width], column j the mean of neighbouring features.

    These are floor(j d / width) to ceil((j + 1) d / width) - 1. Where `width` is more
    than d, most columns repeat one feature: the result has the rank of d features.
    """
    features = x.shape[-1]
    if features == width:
        return x
    # A product, for the gradient of a gather would be a scatter.
    return x @ _means(features, width).astype(x.dtype)


def _means(features: int, width: int) -> Array:
    """f32[features, width]: column j has the weights of the features in its mean."""
    column = np.arange(width)
    first = column * features // width
    behind = -(-(column + 1) * features // width)
    # Compared within the program, which would hold the matrix as a constant otherwise.
    feature = jnp.arange(features)[:, None]
    is_in_mean = (first <= feature) & (feature < behind)
    weight = np.float32(1 / (behind - first))
    return jnp.where(is_in_mean, weight, 0)
