"""Updates that are sent as matrices of low rank, and their bytes.

A matrix A [m, n] = U diag(s) V^T is sent as the first k columns of U and V and the
first k entries of s: k (m + n + 1) numbers. k is the least rank that keeps a share of
the energy:

    s = (3, 2, 1)   energies 9, 4, 1 of 14   a share of 0.95 is 13.3   k = 3

If this is no shorter than the matrix, the matrix itself is sent. Shapes are static but
k is not: left out numbers are zeros here, and bytes are only counted.

Wu et al., Nature Communications 2022, https://arxiv.org/abs/2108.13323 (FedKD).
"""

from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.statistics import is_statistic
from pfljax.core.types import Array


def compress(a: Any, energy: Any) -> tuple[Any, Array]:
    """(the received tree, bytes sent f32[]) for a share of the energy, 0 to 1.

    The kernel of a convolution is reshaped to a matrix whose columns are its last axis.
    Vectors and embedding tables are sent as they are. Running statistics count no
    bytes: they stay with their client (`core.local_statistics`).
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(a)
    arrived = []
    total = jnp.float32(0)
    for path, leaf in leaves:
        size = jnp.float32(leaf.size)
        if is_matrix(path, leaf):
            matrix = leaf.reshape(-1, leaf.shape[-1])
            matrix, size = truncate(matrix, energy)
            leaf = matrix.reshape(leaf.shape)
        if is_statistic(path):
            size = jnp.float32(0)
        arrived.append(leaf)
        total = total + size * leaf.dtype.itemsize
    return jax.tree.unflatten(structure, arrived), total


def is_matrix(path: Any, leaf: Array) -> bool:
    """Whether a leaf is sent at low rank."""
    names = [getattr(key, "key", None) for key in path]
    return leaf.ndim > 1 and "embedding" not in names


def truncate(matrix: Array, energy: Any) -> tuple[Array, Array]:
    """(the received matrix, numbers sent f32[])."""
    rows, columns = matrix.shape
    u, s, vt = jnp.linalg.svd(matrix, full_matrices=False)
    rank = choose_rank(s, energy)
    kept = jnp.where(jnp.arange(len(s)) < rank, s, 0)
    low = jnp.matmul(u * kept, vt, precision="highest")
    size = rank * (rows + columns + 1)
    shorter = size < matrix.size
    sent = jnp.where(shorter, size, matrix.size)
    return jnp.where(shorter, low, matrix), sent.astype(jnp.float32)


def choose_rank(s: Array, energy: Any) -> Array:
    """The least k >= 1 with s_1^2 + .. + s_k^2 >= energy sum_j s_j^2, i32[].

    `s` has the singular values, the largest first.
    """
    # Relative to the largest: squares of small numbers would be 0.
    largest = jnp.maximum(s[0], jnp.finfo(s.dtype).tiny)
    squares = jnp.square(s / largest)
    # The rest is summed from the small end: as a part of the whole sum it would be
    # rounded away, and an energy of 1 would lose it.
    left = jnp.cumsum(squares[::-1])[::-1]
    needed = left > (1 - energy) * left[0]
    return jnp.maximum(jnp.sum(needed, dtype=jnp.int32), 1)
