"""Roots, inverses and eigenvectors of covariances, one matrix after another.

With few CPU threads, XLA may wait for ever for a batch of factorisations beside other
work. So under `vmap` these functions loop.
"""

import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jax.scipy.linalg import cho_factor, cho_solve

from pfljax.core.types import Array


@sequential_vmap
def root(covariance: Array) -> Array:
    """The lower triangle f32[e, e] whose product with its transpose it is."""
    return jnp.linalg.cholesky(covariance)


@sequential_vmap
def inverse(covariance: Array) -> Array:
    """The inverse of a positive definite matrix f32[e, e]."""
    return cho_solve(cho_factor(covariance), jnp.eye(len(covariance)))


@sequential_vmap
def eigh(covariance: Array) -> tuple[Array, Array]:
    """The eigenvalues f32[e] and the eigenvectors, columns of f32[e, e]."""
    values, vectors = jnp.linalg.eigh(covariance)
    return values, vectors
