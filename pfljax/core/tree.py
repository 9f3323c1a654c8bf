"""Arithmetic on pytrees, rows of the client axis, and selected leaves."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core import statistics, tree
from pfljax.core.types import Array

Tree = Any


def add(a: Tree, b: Tree) -> Tree:
    """a + b, leaf by leaf."""
    return jax.tree.map(jnp.add, a, b)


def sub(a: Tree, b: Tree) -> Tree:
    """a - b, leaf by leaf."""
    return jax.tree.map(jnp.subtract, a, b)


def scale(a: Tree, factor: Any) -> Tree:
    """factor * a, leaf by leaf."""
    return jax.tree.map(lambda leaf: factor * leaf, a)


def axpy(factor: Any, a: Tree, b: Tree) -> Tree:
    """factor * a + b, leaf by leaf."""
    return jax.tree.map(lambda x, y: factor * x + y, a, b)


def lerp(a: Tree, b: Tree, t: Any) -> Tree:
    """(1 - t) a + t b; `t` is a number or a tree of numbers shaped as `a`."""
    if jax.tree.structure(t) != jax.tree.structure(a):
        t = jax.tree.map(lambda _: t, a)
    return jax.tree.map(lambda x, y, s: (1 - s) * x + s * y, a, b, t)


def where(condition: Array, a: Tree, b: Tree) -> Tree:
    """a if the scalar `condition` holds, else b."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def zeros(a: Tree) -> Tree:
    """Zeros of the shapes and dtypes of `a`."""
    return jax.tree.map(jnp.zeros_like, a)


def dot(a: Tree, b: Tree) -> Array:
    """Inner product over all leaves but running statistics, f32[]."""
    a, b = parameters(a), parameters(b)
    products = jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)
    return jnp.sum(jnp.stack([jnp.float32(0), *jax.tree.leaves(products)]))


def square_norm(a: Tree) -> Array:
    """Squared L2 norm over all leaves but running statistics, f32[]."""
    return dot(a, a)


def take(stacked: Tree, rows: Array) -> Tree:
    """Rows of the leading axis; rows past the end are clipped to the last."""
    return jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0, mode="clip"), stacked)


def put(stacked: Tree, rows: Array, values: Tree) -> Tree:
    """`stacked` with `values` written at `rows`; rows past the end are dropped."""
    return jax.tree.map(
        lambda leaf, new: leaf.at[rows].set(new, mode="drop"), stacked, values
    )


def split(a: Tree, chosen: Tree) -> tuple[Tree, Tree]:
    """(chosen leaves, the others), each shaped as `a` with None where a leaf is absent.

    `chosen` has a bool at every leaf; `merge` undoes it.
    """
    inside = jax.tree.map(lambda leaf, yes: leaf if yes else None, a, chosen)
    outside = jax.tree.map(lambda leaf, yes: None if yes else leaf, a, chosen)
    return inside, outside


def merge(a: Tree, b: Tree) -> Tree:
    """The tree whose leaves `split` dealt to `a` and `b`."""
    return jax.tree.map(
        lambda x, y: y if x is None else x, a, b, is_leaf=lambda leaf: leaf is None
    )


def parameters(a: Tree) -> Tree:
    """`a` without its running statistics, which are None."""
    return split(a, statistics.chosen(a))[1]


def labelled(labels: Tree, name: str) -> Tree:
    """True at every leaf of `labels` that equals `name`: a choice for `split`."""
    return jax.tree.map(lambda label: label == name, labels)


def nbytes(a: Tree) -> int:
    """Bytes of all leaves; works on abstract arrays too."""
    return sum(
        math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize
        for leaf in jax.tree.leaves(a)
    )


def paths(a: Tree, join: Callable[[Any], str] | None = None) -> dict[str, Any]:
    """Leaves by their path, 'module/kernel' style, in the order of the tree."""
    join = join or (lambda path: jax.tree_util.keystr(path, simple=True, separator="/"))
    return {join(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(a)}


def square_cosine(a, b):
    """cos^2 of the angle between two parameter trees, f32[]; 0 if one is zero."""
    scale = tree.square_norm(a) * tree.square_norm(b)
    return tree.dot(a, b) ** 2 / jnp.maximum(scale, 1e-12)
