"""The outputs of a model for single examples, and examples labelled by their numbers.

This is for methods whose clients send an output for each example, and are trained
towards a target for each example.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.minibatches import take_examples
from pfljax.core.types import Array, Batch, ClientData, Examples


def compute_outputs(
    value: Callable[[Batch], Any],
    data: ClientData,
    index: Array,
    batch_size: int,
) -> Any:
    """`value` of each of the examples at `index` i32[n], in order, leaves [n, ...].

    Args:
      value: a batch -> leaves [B, ...], an entry for each example.
      data: the data that has the examples.
      index: their numbers, from 0 to size - 1; at least one.
      batch_size: number of examples that are computed at once.
    """
    count = len(index)
    size = min(batch_size, count)
    # The last batch is padded with the last example, whose outputs are cut off again.
    padded = jnp.pad(index, (0, -count % size), mode="edge")

    def compute_batch(index: Array) -> Any:
        return value(take_examples(data, index, jnp.ones(size)))

    stacked = jax.lax.map(compute_batch, padded.reshape(-1, size))

    def unstack(leaf: Array) -> Array:
        return leaf.reshape(-1, *leaf.shape[2:])[:count]

    return jax.tree.map(unstack, stacked)


def number_examples(data: ClientData) -> ClientData:
    """The same examples with their numbers, from 0, in place of their labels."""
    number = jnp.arange(len(data.examples.y), dtype=jnp.int32) - data.offset
    return data._replace(examples=Examples(x=data.examples.x, y=number))


def list_examples(index: Array) -> ClientData:
    """Examples that are themselves numbers of examples, `index` i32[n].

    They are labelled by their position in `index`. A minibatch of them names the
    examples of other data that it needs, and the positions of their targets.
    """
    count = len(index)
    places = jnp.arange(count, dtype=jnp.int32)
    return ClientData(
        examples=Examples(x=index, y=places),
        offset=jnp.int32(0),
        size=jnp.int32(count),
    )
