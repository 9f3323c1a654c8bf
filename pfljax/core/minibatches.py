"""Which of a client's rows a step sees.

A client's rows are `size` rows of the pool, behind its `offset`; nothing is copied or
stored in another order. `minibatch` computes the numbers of the rows of one step from
the step's own number: an epoch is a permutation of the client's rows, cut into batches.
The last batch of an epoch may be short, and is padded under mask 0. Of a client with 5
rows, in batches of 2:

    step    0     1     2     3     4     5
    rows    1 4   3 2   0 -   0 3   4 2   1 -
    mask    1 1   1 1   1 0   1 1   1 1   1 0
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

BLOCK = 32  # steps whose rows are numbered at once, where they are


def steps_per_epoch(local: Local, size: Array) -> Array:
    """Batches that cover `size` rows, the last one short if need be; i32[...]."""
    return -(-size // local.batch_size)


def each_minibatch(
    body: Callable[[Array, Batch, Any], Any],
    start: Any,
    data: ClientData,
    steps: Array | int,
    key: Key,
    batch_size: int,
) -> Any:
    """What body(step, batch, carry) -> carry makes of `start` in so many steps."""

    def one(step: Array, carry: Any) -> Any:
        return body(step, minibatch(data, step, key, batch_size), carry)

    def block(number: Array, carry: Any) -> Any:
        first = number * BLOCK
        numbers = example_numbers(data, first + jnp.arange(BLOCK), key, batch_size)

        def one_block(index: Array, carry: Any) -> Any:
            batch = take_examples(data, *tree.take(numbers, index))
            return body(first + index, batch, carry)

        left = jnp.minimum(BLOCK, steps - first)
        return jax.lax.fori_loop(0, left, one_block, carry)

    if in_blocks(steps):
        return jax.lax.fori_loop(0, blocks(steps), block, start)
    return jax.lax.fori_loop(0, steps, one, start)


def in_blocks(steps: Array | int) -> bool:
    """Whether the rows of so many steps are numbered a block of steps at a time.

    The walk of a shuffle is a loop of unknown length, and in each lap of such a loop a
    GPU asks the host whether there is another: once a block is better than once a step.
    A CPU would number rows in vain where budgets are short. A number of steps that is
    known makes a loop with a gradient backwards, which blocks have not.
    """
    return isinstance(steps, Tracer) and jax.default_backend() != "cpu"


@custom_vmap
def blocks(steps: Array) -> Array:
    """Blocks that hold so many steps; under vmap one count, of the lane with most.

    A lane that is done takes no step of a further block. Under vmap a loop with a count
    for each lane selects what the lane carries, old or new, and so keeps both.
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
    """Rows of a step: exact epochs, each shuffled anew, the last batch short."""
    return take_examples(data, *example_numbers(data, step, key, batch_size))


def example_numbers(
    data: ClientData,
    step: Array,
    key: Key,
    batch_size: int,
) -> tuple[Array, Array]:
    """(numbers i32[..., B], mask bool[..., B]) of the rows of `step` i32[...]."""
    size = jnp.maximum(data.size, 1)
    per_epoch = -(-size // batch_size)
    epoch = (step // per_epoch)[..., None]
    first = (step % per_epoch * batch_size)[..., None]
    position = first + jnp.arange(batch_size)
    # The shuffle is one of [0, size): padding takes the last row, under mask 0.
    existing = jnp.minimum(position, size - 1)
    return index_shuffle(existing, size, key, epoch), position < data.size


def sample(
    data: ClientData,
    key: Key,
    batch_size: int,
) -> Batch:
    """`batch_size` rows drawn uniformly with replacement."""
    size = jnp.maximum(data.size, 1)
    drawn = jax.random.randint(key, (batch_size,), 0, size)
    has_rows = jnp.full(batch_size, data.size > 0)
    return take_examples(data, drawn, has_rows)


def take_examples(
    data: ClientData,
    index: Array,
    valid: Array,
) -> Batch:
    """The client's rows at `index` [B], in storage type; mask from `valid` [B]."""
    x, y = tree.take(data.examples, data.offset + index)
    return Batch(x, y, valid.astype(jnp.float32))


def divide(data: ClientData, share: float) -> tuple[ClientData, ClientData]:
    """(first, rest): a share of the client's rows, and the others.

    A federation has shuffled them. Both have a row: of one row, the same.
    """
    most = jnp.maximum(data.size - 1, jnp.minimum(data.size, 1))
    count = jnp.round(share * data.size).astype(jnp.int32)
    count = jnp.clip(count, 1, most)
    start = jnp.clip(count, 0, jnp.maximum(data.size - 1, 0))
    rest = data._replace(offset=data.offset + start, size=data.size - start)
    return data._replace(size=count), rest


def in_batches(batch: Batch, batch_size: int) -> Batch:
    """A batch of whole batches as a stack of them, leaves [B / batch_size, ...].

    A model applied to each by `vmap` sees `batch_size` rows, as its batch normalisation
    must, however many are computed at once.
    """

    def stack(leaf: Array) -> Array:
        return leaf.reshape(-1, batch_size, *leaf.shape[1:])

    return jax.tree.map(stack, batch)
