"""Arithmetic on pytrees, indexing of their leading axis, and selected leaves."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core import statistics
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

    def scale_leaf(leaf: Array) -> Array:
        return factor * leaf

    return jax.tree.map(scale_leaf, a)


def multiply(a: Tree, b: Tree) -> Tree:
    """a * b, by coordinate."""
    return jax.tree.map(jnp.multiply, a, b)


def axpy(
    factor: Any,
    a: Tree,
    b: Tree,
) -> Tree:
    """factor * a + b, leaf by leaf."""

    def on_leaves(x: Array, y: Array) -> Array:
        return factor * x + y

    return jax.tree.map(on_leaves, a, b)


def lerp(
    a: Tree,
    b: Tree,
    t: Any,
) -> Tree:
    """(1 - t) a + t b; `t` is a number or a tree of numbers shaped as `a`."""

    def on_leaves(
        x: Array,
        y: Array,
        s: Any,
    ) -> Array:
        # Not x + s (y - x): at s = 1 this is y, bit for bit.
        return (1 - s) * x + s * y

    if jax.tree.structure(t) != jax.tree.structure(a):
        t = jax.tree.map(lambda _: t, a)
    return jax.tree.map(on_leaves, a, b, t)


def where(
    condition: Array,
    a: Tree,
    b: Tree,
) -> Tree:
    """a if the scalar `condition` holds, else b."""

    def on_leaves(x: Array, y: Array) -> Array:
        return jnp.where(condition, x, y)

    return jax.tree.map(on_leaves, a, b)


def where_each(chosen: Array, a: Tree, b: Tree) -> Tree:
    """Entries of the leading axis of `a` where `chosen`, bool[M], else of `b`."""

    def on_leaves(x: Array, y: Array) -> Array:
        return jnp.where(column(chosen, y), x, y)

    return jax.tree.map(on_leaves, a, b)


def column(vector: Array, like: Array) -> Array:
    """`vector` [M], or a number, in a shape that broadcasts against `like` [M, ...]."""
    return vector.reshape(vector.shape + (1,) * (like.ndim - 1))


def zeros(a: Tree) -> Tree:
    """Zeros of the shapes and dtypes of `a`."""
    return jax.tree.map(jnp.zeros_like, a)


def stack_zeros(a: Tree, count: int) -> Tree:
    """Zeros of the dtypes of `a`, `count` of each leaf: leaves [count, ...]."""

    def on_leaf(leaf: Any) -> Array:
        return jnp.zeros((count, *leaf.shape), leaf.dtype)

    return jax.tree.map(on_leaf, a)


def stack_copies(a: Tree, count: int) -> Tree:
    """`count` copies of `a`: leaves [count, ...]."""

    def on_leaf(leaf: Array) -> Array:
        return jnp.broadcast_to(leaf, (count, *leaf.shape))

    return jax.tree.map(on_leaf, a)


def full(a: Tree, value: Any) -> Tree:
    """`value` at every coordinate of `a`."""
    return jax.tree.map(lambda leaf: jnp.full_like(leaf, value), a)


def dot(a: Tree, b: Tree) -> Array:
    """Inner product over all leaves but running statistics, f32[]."""

    def on_leaves(x: Array, y: Array) -> Array:
        return jnp.sum(x * y)

    products = jax.tree.map(on_leaves, parameters(a), parameters(b))
    # The 0 is there for empty trees.
    terms = [jnp.float32(0), *jax.tree.leaves(products)]
    return jnp.sum(jnp.stack(terms))


def square_norm(a: Tree) -> Array:
    """Squared L2 norm over all leaves but running statistics, f32[]."""
    return dot(a, a)


def first(stacked: Tree) -> Tree:
    """The first entry of the leading axis."""
    return jax.tree.map(lambda leaf: leaf[0], stacked)


def take(stacked: Tree, index: Array) -> Tree:
    """Entries of the leading axis; indices past the end are clipped to the last."""

    def on_leaf(leaf: Array) -> Array:
        # Otherwise such entries would be NaN, whose product with mask 0 is NaN.
        return jnp.take(leaf, index, axis=0, mode="clip")

    return jax.tree.map(on_leaf, stacked)


def take_or(stacked: Tree, index: Array, default: Any = 0) -> Tree:
    """The entries of the leading axis at `index`; `default` past its end.

    A client that is not part of the run has such an index.
    """

    def on_leaf(leaf: Array) -> Array:
        return leaf.at[index].get(mode="fill", fill_value=default)

    return jax.tree.map(on_leaf, stacked)


def put(
    stacked: Tree,
    index: Array,
    values: Tree,
) -> Tree:
    """`stacked` with `values` at `index`; indices past the end are dropped."""

    def on_leaves(leaf: Array, new: Array) -> Array:
        return leaf.at[index].set(new, mode="drop")

    return jax.tree.map(on_leaves, stacked, values)


def split(a: Tree, chosen: Tree) -> tuple[Tree, Tree]:
    """(chosen leaves, the others), each shaped as `a` with None where a leaf is absent.

    `chosen` has a bool at every leaf; `merge` undoes it.
    """

    def if_chosen(leaf: Any, is_chosen: bool) -> Any:
        return leaf if is_chosen else None

    def if_not(leaf: Any, is_chosen: bool) -> Any:
        return None if is_chosen else leaf

    inside = jax.tree.map(if_chosen, a, chosen)
    outside = jax.tree.map(if_not, a, chosen)
    return inside, outside


def merge(a: Tree, b: Tree) -> Tree:
    """The tree that `split` has divided into `a` and `b`."""

    def absent(leaf: Any) -> bool:
        return leaf is None

    def either(x: Any, y: Any) -> Any:
        return y if absent(x) else x

    # JAX treats None as an empty tree: `is_leaf` makes it a leaf.
    return jax.tree.map(either, a, b, is_leaf=absent)


def with_structure(a: Tree, like: Tree) -> Tree:
    """The leaves of `a` in the structure of `like`.

    Heads that are split off models with different bodies have the same leaves in
    different structures.
    """
    return jax.tree.unflatten(jax.tree.structure(like), jax.tree.leaves(a))


def parameters(a: Tree) -> Tree:
    """`a` without its running statistics, which are None."""
    _, without_statistics = split(a, statistics.mask(a))
    return without_statistics


def matches(labels: Tree, name: str) -> Tree:
    """True at every leaf of `labels` that equals `name`: a choice for `split`."""
    return jax.tree.map(lambda label: label == name, labels)


def nbytes(a: Tree) -> int:
    """Bytes of all leaves; works on abstract arrays too."""
    total = 0
    for leaf in jax.tree.leaves(a):
        # Not `leaf.nbytes`, which shapes of `jax.eval_shape` do not have.
        total += math.prod(leaf.shape) * leaf.dtype.itemsize
    return total


def paths(a: Tree, join: Callable[[Any], str] | None = None) -> dict[str, Any]:
    """Leaves by their paths, such as 'module/kernel', in the order of the tree."""
    join = join or _with_slashes
    leaves = jax.tree_util.tree_leaves_with_path(a)
    return {join(path): leaf for path, leaf in leaves}


def _with_slashes(path: Any) -> str:
    """A path of JAX's keys as text."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def square_cosine(a: Tree, b: Tree) -> Array:
    """cos^2 of the angle between two parameter trees, f32[]; 0 if one is zero."""
    squares = square_norm(a) * square_norm(b)
    # The square needs no root, whose gradient is infinite at zero.
    return dot(a, b) ** 2 / jnp.maximum(squares, 1e-12)
