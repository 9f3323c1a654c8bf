"""Maps a function over many clients, in chunks under one vmap."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.types import Array


class Chunks(NamedTuple):
    """Clients in the order of their work, cut into chunks of `width`.

    The last chunk is filled with the client of least work, which adds no time.
    """

    width: int
    order: Array  # i32[M], largest first
    filled: Array  # i32[chunks * width], `order` and the filling

    @property
    def lanes(self) -> tuple[int, ...]:
        """The axes of a chunk: one client needs no vmap, and no axis of length 1."""
        return (self.width,) if self.width > 1 else ()

    def cut(self, by_client: Any) -> Any:
        """Leaves [M, ...] as [chunks, *lanes, ...]."""

        def cut_leaf(leaf: Array) -> Array:
            return leaf[self.filled].reshape(-1, *self.lanes, *leaf.shape[1:])

        return jax.tree.map(cut_leaf, by_client)

    def in_order(self, by_chunk: Any) -> Any:
        """Leaves [chunks, *lanes, ...] as [M, ...], in the original order."""
        place_in_order = jnp.argsort(self.order)

        def restore_leaf(leaf: Array) -> Array:
            by_client = leaf.reshape(-1, *leaf.shape[1 + len(self.lanes) :])
            return by_client[place_in_order]

        return jax.tree.map(restore_leaf, by_chunk)


def _cut_chunks(steps: Array, width: int) -> Chunks:
    """The chunks of clients whose work is `steps` i32[M]."""
    order = jnp.argsort(-steps, stable=True)
    filling = jnp.repeat(order[-1:], -steps.shape[0] % width)
    return Chunks(width, order, jnp.concatenate([order, filling]))


def over_clients(
    f: Callable[..., Any],
    args: tuple,
    steps: Array,
    width: int | None,
    used: Array | None = None,
) -> Any:
    """The stacked results of `f` over the leading axis of `args`, in chunks.

    Clients are sorted by their work `steps`, so that those of a chunk of `width`
    clients finish together. The results are in the original order. If only the first
    `used` clients are needed, chunks of others are left out, with zeros as results.
    """
    count = steps.shape[0]
    if width is None or width >= count:
        return jax.vmap(f)(*args)
    chunks = _cut_chunks(steps, width)
    one_chunk = jax.vmap(f) if chunks.lanes else f
    if used is None:
        stacked = jax.lax.map(lambda chunk: one_chunk(*chunk), chunks.cut(args))
    else:
        stacked, _ = _loop(one_chunk, chunks.cut(args), None, -(-used // width))
    return chunks.in_order(stacked)


def sum_over_clients(
    f: Callable[..., Any],
    args: tuple,
    weight: Array,
    steps: Array,
    width: int,
    used: Array | None = None,
) -> tuple[Any, Any]:
    """Maps like `over_clients`, with a part that is summed: (stacked results, sum).

    `f` returns (result, term). Terms are multiplied by their `weight` f32[M] and added
    chunk after chunk; they are never stacked. A term of weight 0 adds nothing, even if
    it is infinite.
    """
    chunks = _cut_chunks(steps, width)
    one_chunk = jax.vmap(f) if chunks.lanes else f
    # The filling has counted already, in its own place.
    first_place = jnp.arange(chunks.filled.shape[0]) < steps.shape[0]
    weights = jnp.where(first_place, weight[chunks.filled], 0)
    weights = weights.reshape(-1, *chunks.lanes)
    count: Any = len(weights) if used is None else -(-used // width)
    stacked, total = _loop(one_chunk, chunks.cut(args), weights, count)
    return chunks.in_order(stacked), total


def _loop(
    f: Callable[..., Any], chunks: tuple, weights: Array | None, count: Any
) -> tuple[Any, Any]:
    """(stacked results, sum) of `f` over the first `count` chunks.

    The results of the others are zeros. `weights` are [chunks, *lanes]; with None `f`
    has results only, and the sum is ().
    """
    length = jax.tree.leaves(chunks)[0].shape[0]

    def step(index: Array, carry: Any) -> Any:
        results, total = carry
        chunk, weight = tree.take((chunks, weights), index)
        result = f(*chunk)
        if weights is not None:
            result, term = result
            total = tree.add(total, _weighted_sum(term, weight))
        return tree.put(results, index, result), total

    result = jax.eval_shape(f, *jax.tree.map(_first_shape, chunks))
    total: Any = ()
    if weights is not None:
        result, term = result
        total = jax.eval_shape(_weighted_sum, term, _first_shape(weights))
    start = tree.stack_zeros(result, length), tree.zeros(total)
    # `lax.map` would run all chunks: only this loop may end at a traced count.
    return jax.lax.fori_loop(0, count, step, start)


def _first_shape(leaf: Array) -> jax.ShapeDtypeStruct:
    """The first entry of a leaf, as a shape."""
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


def _weighted_sum(term: Any, weight: Array) -> Any:
    """The term times its weight, summed over the lanes that `weight` has."""

    def sum_leaf(leaf: Array) -> Array:
        factor = tree.column(weight, leaf)
        # Chosen by `where`: the product of 0 and what is not finite is NaN.
        product = jnp.where(factor != 0, factor * leaf, 0)
        return product.sum(0) if weight.ndim else product

    return jax.tree.map(sum_leaf, term)
