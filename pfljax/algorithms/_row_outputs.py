"""What a model makes of each of some rows, and rows that know their numbers.

For methods whose clients send an output a row, and step towards an answer a row.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.minibatches import rows
from pfljax.core.types import Array, Batch, ClientData, Examples


def compute_outputs(
    value: Callable[[Batch], Any],
    data: ClientData,
    index: Array,
    batch_size: int,
) -> Any:
    """`value` of each of the rows at `index` i32[n], in their order, leaves [n, ...].

    Args:
      value: a batch -> leaves [B, ...], an entry a row.
      data: whose rows they are.
      index: their numbers, of 0 .. size; there must be one at least.
      batch_size: rows that are computed at once.
    """
    count = len(index)
    size = min(batch_size, count)
    # The last batch is filled up with the last row, whose outputs are cut off again.
    padded = jnp.pad(index, (0, -count % size), mode="edge")

    def one_batch(index: Array) -> Any:
        return value(rows(data, index, jnp.ones(size)))

    stacked = jax.lax.map(one_batch, padded.reshape(-1, size))

    def in_one(leaf: Array) -> Array:
        return leaf.reshape(-1, *leaf.shape[2:])[:count]

    return jax.tree.map(in_one, stacked)


def number_examples(data: ClientData) -> ClientData:
    """The same rows with their numbers, 0 .. size, in place of their labels."""
    number = jnp.arange(len(data.examples.y), dtype=jnp.int32) - data.offset
    return data._replace(examples=Examples(x=data.examples.x, y=number))


def list_examples(index: Array) -> ClientData:
    """Rows that are row numbers, `index` i32[n], labelled by their place in this list.

    A minibatch of them says which rows of other data it wants, and which answers.
    """
    count = len(index)
    places = jnp.arange(count, dtype=jnp.int32)
    return ClientData(
        examples=Examples(x=index, y=places),
        offset=jnp.int32(0),
        size=jnp.int32(count),
    )
