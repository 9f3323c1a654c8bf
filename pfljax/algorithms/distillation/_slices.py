"""Slices of a model that have the first channels of its leaves, and their means.

A slice of a leaf is its leading corner. Of a kernel [3, 4], a model that is two
channels narrower on either side has the part [1, 2]:

    a a . .         cut: only the entries a
    . . . .         embed: the entries a, and zeros for the points
    . . . .

Diao, Ding, Tarokh, ICLR 2021, https://arxiv.org/abs/2010.01264.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.communication import shapes_of_model
from pfljax.core.types import Array, Params, Task

Tree = Any
NO_CLASSES = -1  # for a leaf without an axis of classes


def cut(a: Tree, like: Tree) -> Tree:
    """The leading corner of each leaf, of the shape that it has in `like`."""

    def on_leaves(leaf: Array, corner: Any) -> Array:
        return leaf[_corner(corner.shape)]

    return jax.tree.map(on_leaves, a, like)


def add(a: Tree, corner: Tree) -> Tree:
    """`a` with `corner` added to the leading corner of each leaf."""

    def on_leaves(leaf: Array, part: Array) -> Array:
        return leaf.at[_corner(part.shape)].add(part)

    return jax.tree.map(on_leaves, a, corner)


def embed(corner: Tree, like: Tree) -> Tree:
    """Zeros shaped as `like`, with `corner` in the leading corner of each leaf."""
    return add(jax.tree.map(jnp.zeros_like, like), corner)


def cover(corner: Tree, like: Tree) -> Tree:
    """The mask of a slice: 1 where `embed` puts a value, 0 elsewhere."""

    def ones(part: Any) -> Array:
        return jnp.ones(part.shape)

    return embed(jax.tree.map(ones, corner), like)


def _corner(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in shape)


def largest(shapes: Sequence[Params]) -> int:
    """The number of the model that all others are slices of.

    Raises:
      ValueError: there is none.
    """

    def parameters(number: int) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(shapes[number]))

    number = max(range(len(shapes)), key=parameters)
    for other, smaller in enumerate(shapes):
        difference = _outside(smaller, shapes[number])
        if difference:
            raise ValueError(
                f"model {other} is no slice of model {number}, the largest: "
                f"{difference}; choose models of one kind that differ in width alone, "
                "such as heterofl_a and heterofl_e"
            )
    return number


def _outside(smaller: Params, larger: Params) -> str:
    """The difference that makes a model no slice of a larger one; "" without one."""
    parts = _by_path(smaller)
    wholes = _by_path(larger)
    for path in parts | wholes:
        if path not in parts or path not in wholes:
            return f"one of them alone has {path}"
        part = parts[path].shape
        whole = wholes[path].shape
        if len(part) != len(whole) or any(map(int.__gt__, part, whole)):
            return f"{path} is {list(part)}, expected at most {list(whole)}"
    return ""


def _by_path(shapes: Params) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def class_axes(task: Task) -> Params:
    """The axis of classes of every leaf of the output layer.

    The output layer is the last module. The axis is the one whose length is the number
    of classes. All other leaves have `NO_CLASSES`.
    """

    def class_axis(path: Any, leaf: Any, module: int) -> int:
        axes = [i for i, size in enumerate(leaf.shape) if size == task.num_classes]
        if module != task.num_modules - 1 or not axes:
            return NO_CLASSES
        return axes[0] if len(axes) == 1 else _axis_of_logits(task, path, axes)

    shapes = shapes_of_model(task)
    return jax.tree_util.tree_map_with_path(class_axis, shapes, task.modules)


def _axis_of_logits(task: Task, path: Any, axes: Sequence[int]) -> int:
    """The axis of a leaf along which the first logit has the first entries alone.

    It is computed only where the leaf has as many inputs as classes.
    """

    def first_logit(params: Params) -> Array:
        return task.head(params, jnp.ones((1, *task.feature_shape)))[0, 0]

    with jax.ensure_compile_time_eval():  # a method may be built within a trace
        slopes = jax.grad(first_logit)(task.init(jax.random.key(0)))
    slope = dict(jax.tree_util.tree_leaves_with_path(slopes))[path]
    others = jnp.arange(1, task.num_classes)
    return next(axis for axis in axes if not slope.take(others, axis).any())


def weights(sent: Tree, weight: Array, present: Array, axes: Params) -> Tree:
    """The weight of each element of stacked slices, to broadcast against `sent`.

    Args:
      sent: slices stacked over M.
      weight: f32[M], the weight of each client.
      present: f32[M, K], 1 for each class that the client has.
      axes: the result of `class_axes`.
    """

    def on_leaf(leaf: Array, axis: int) -> Array:
        shape = [len(weight)] + [1] * (leaf.ndim - 1)
        if axis == NO_CLASSES:
            return weight.reshape(shape)
        shape[1 + axis] = present.shape[1]
        return (weight[:, None] * present).reshape(shape)

    return jax.tree.map(on_leaf, sent, axes)


def counted_mean(stacks: Iterable[tuple[Tree, Tree]], default: Tree) -> Tree:
    """Mean of each element over the slices that have it, or else its `default`.

    `stacks` has pairs of slices, stacked over M with shapes of their own, and their
    `weights`.
    """

    def sum_leaf(leaf: Array, weight: Array) -> Array:
        return jnp.sum(leaf * weight, 0)

    def count_leaf(leaf: Array, weight: Array) -> Array:
        return jnp.broadcast_to(jnp.sum(weight, 0), leaf.shape[1:])

    total = jax.tree.map(jnp.zeros_like, default)
    count = total
    for sent, weight in stacks:
        total = add(total, jax.tree.map(sum_leaf, sent, weight))
        count = add(count, jax.tree.map(count_leaf, sent, weight))

    def on_leaves(total: Array, count: Array, old: Array) -> Array:
        # `where` computes both: neither may divide by 0.
        means = total / jnp.where(count > 0, count, 1)
        return jnp.where(count > 0, means, old)

    return jax.tree.map(on_leaves, total, count, default)
