"""Many clients on one device: some at a time under one vmap, chunk after chunk."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.types import Array


def over_clients(
    f: Callable[..., Any],
    args: tuple,
    steps: Array,
    width: int | None,
    used: Array | None = None,
) -> Any:
    """`f` over the leading axis of `args`, `width` clients at a time; stacked results.

    Clients are sorted by `steps`, their work, so that a chunk's lanes finish together;
    the results come back in the order given. Of `used` clients, the first ones, chunks
    behind the last are left out: their results are zeros.
    """
    count = steps.shape[0]
    if width is None or width >= count:
        return jax.vmap(f)(*args)
    order = jnp.argsort(-steps, stable=True)
    # The last chunk is filled with the client of least work, who adds none to its time.
    filling = jnp.repeat(order[-1:], -count % width)
    padded = jnp.concatenate([order, filling])
    # One at a time needs no vmap, and no axis of length 1 in each of its products.
    lanes = (width,) if width > 1 else ()
    one_chunk = jax.vmap(f) if lanes else f

    def chunked(leaf: Array) -> Array:
        return leaf[padded].reshape(-1, *lanes, *leaf.shape[1:])

    chunks = jax.tree.map(chunked, args)
    if used is None:
        stacked = jax.lax.map(lambda chunk: one_chunk(*chunk), chunks)
    else:
        chunks_used = -(-used // width)
        stacked = _first_chunks(one_chunk, chunks, chunks_used)
    place_in_order = jnp.argsort(order)

    def as_given(leaf: Array) -> Array:
        by_client = leaf.reshape(-1, *leaf.shape[1 + len(lanes) :])
        return by_client[place_in_order]

    return jax.tree.map(as_given, stacked)


def _first_chunks(
    f: Callable[..., Any],
    chunks: tuple,
    count: Array,
) -> Any:
    """`f` over the first `count` of stacked chunks; zeros stand for the others."""
    length = jax.tree.leaves(chunks)[0].shape[0]

    def step(index: Array, results: Any) -> Any:
        chunk = tree.take(chunks, index)
        return tree.put(results, index, f(*chunk))

    def zeros(shape: Any) -> Array:
        return jnp.zeros((length, *shape.shape), shape.dtype)

    first_chunk = jax.tree.map(lambda leaf: leaf[0], chunks)
    shapes = jax.eval_shape(f, *first_chunk)
    # `lax.map` would run all chunks: only this loop may end at a traced count.
    return jax.lax.fori_loop(0, count, step, jax.tree.map(zeros, shapes))
