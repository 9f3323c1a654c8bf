"""Minibatches of a client's examples.

A client has `size` examples of the pool from its `offset` on; nothing is copied or
stored in another order. `minibatch` computes the indices of a step's examples from the
number of the step: an epoch is a permutation of the client's examples, cut into
batches. The last batch of an epoch may be short, and is padded with mask 0. For a
client with 5 examples, in batches of 2:

    step        0     1     2     3     4     5
    examples    1 4   3 2   0 -   0 3   4 2   1 -
    mask        1 1   1 1   1 0   1 1   1 1   1 0
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.custom_batching import custom_vmap

from pfljax.core import tree
from pfljax.core.shuffle import index_shuffle
from pfljax.core.types import Array, Batch, ClientData, Key, Local

BLOCK = 32  # steps whose examples are numbered at once, if `in_blocks`


def steps_per_epoch(local: Local, size: Any) -> Any:
    """Counts the batches that cover `size` examples, i32[...]."""
    return -(-size // local.batch_size)


def each_minibatch(
    body: Callable[[Array, Batch, Any], Any],
    start: Any,
    data: ClientData,
    steps: Array | int,
    key: Key,
    batch_size: int,
) -> Any:
    """Carries `start` through so many steps of body(step, batch, carry) -> carry."""

    def take_step(step: Array, carry: Any) -> Any:
        return body(step, minibatch(data, step, key, batch_size), carry)

    def take_block(number: Array, carry: Any) -> Any:
        first = number * BLOCK
        indices = example_numbers(data, first + jnp.arange(BLOCK), key, batch_size)

        def take_step_of_block(i: Array, carry: Any) -> Any:
            batch = take_examples(data, *tree.take(indices, i))
            return body(first + i, batch, carry)

        left = jnp.minimum(BLOCK, steps - first)
        return jax.lax.fori_loop(0, left, take_step_of_block, carry)

    if in_blocks(steps):
        return jax.lax.fori_loop(0, blocks(steps), take_block, start)
    return jax.lax.fori_loop(0, steps, take_step, start)


def in_blocks(steps: Array | int) -> bool:
    """Whether the examples of so many steps are numbered a block of steps at a time.

    The walk of a shuffle is a loop of unknown length. In each iteration of such a loop
    a GPU asks the host whether there is another, and once a block is better than once a
    step. A CPU would number examples in vain where clients take few steps. A known
    number of steps makes a loop with a reverse-mode gradient, which blocks lack.
    """
    return isinstance(steps, Tracer) and jax.default_backend() != "cpu"


@custom_vmap
def blocks(steps: Array) -> Array:
    """Counts the blocks of so many steps; under vmap, those of the lane with most.

    A lane that is done takes no step of a further block. Under vmap a loop with a count
    for each lane would keep old and new carries, to select between them.
    """
    return -(-steps // BLOCK)


@blocks.def_vmap
def _blocks_of_lanes(axis_size: int, in_batched: Any, steps: Array) -> Any:
    return blocks(steps.max()), False


def minibatch(
    data: ClientData,
    step: Array,
    key: Key,
    batch_size: int,
) -> Batch:
    """Takes the batch of a step; each epoch is shuffled anew, its last batch short."""
    return take_examples(data, *example_numbers(data, step, key, batch_size))


def example_numbers(
    data: ClientData,
    step: Array,
    key: Key,
    batch_size: int,
) -> tuple[Array, Array]:
    """Returns (indices i32[..., B], mask bool[..., B]) of the examples of `step`."""
    size = jnp.maximum(data.size, 1)
    per_epoch = -(-size // batch_size)
    epoch = (step // per_epoch)[..., None]
    first = (step % per_epoch * batch_size)[..., None]
    position = first + jnp.arange(batch_size)
    # The shuffle is one of [0, size): padding takes the last example, with mask 0.
    existing = jnp.minimum(position, size - 1)
    return index_shuffle(existing, size, key, epoch), position < data.size


def sample(
    data: ClientData,
    key: Key,
    batch_size: int,
) -> Batch:
    """Draws `batch_size` examples uniformly with replacement."""
    size = jnp.maximum(data.size, 1)
    drawn = jax.random.randint(key, (batch_size,), 0, size)
    has_examples = jnp.full(batch_size, data.size > 0)
    return take_examples(data, drawn, has_examples)


def take_batch(data: ClientData, number: Array, batch_size: int) -> Batch:
    """Takes the batch of this number if the client's examples are cut in order.

    Past the end the last example is taken again, with mask 0.
    """
    position = number * batch_size + jnp.arange(batch_size)
    existing = jnp.minimum(position, jnp.maximum(data.size - 1, 0))
    return take_examples(data, existing, position < data.size)


def take_examples(
    data: ClientData,
    index: Array,
    valid: Array,
) -> Batch:
    """Takes the client's examples at `index` [B], as stored, with mask `valid` [B]."""
    x, y = tree.take(data.examples, data.offset + index)
    return Batch(x, y, valid.astype(jnp.float32))


def divide(data: ClientData, share: float) -> tuple[ClientData, ClientData]:
    """Divides a client's examples into a share of them, and the others.

    A federation has shuffled them. Both parts have an example; if there is only one,
    they share it.
    """
    count, others = divide_size(data.size, share)
    start = data.offset + data.size - others
    return data._replace(size=count), data._replace(offset=start, size=others)


def divide_size(size: Array, share: float) -> tuple[Array, Array]:
    """The numbers of examples i32[...] in both parts that `divide` makes."""
    most = jnp.maximum(size - 1, jnp.minimum(size, 1))
    count = jnp.clip(jnp.round(share * size).astype(jnp.int32), 1, most)
    return count, size - jnp.clip(count, 0, jnp.maximum(size - 1, 0))


def in_batches(batch: Batch, batch_size: int) -> Batch:
    """Splits a batch: leaves [B / batch_size, batch_size, ...].

    Apply the model to them with `vmap`. Batch normalisation then sees `batch_size`
    examples at a time, however many examples are computed at once.
    """

    def stack(leaf: Array) -> Array:
        return leaf.reshape(-1, batch_size, *leaf.shape[1:])

    return jax.tree.map(stack, batch)
