"""The diagonal of a client's Fisher matrix: the information about each parameter.

It is the empirical one, with the labels of the examples, in evaluation mode:

    examples  mean over examples x of (grad loss(x))^2
    batches   mean over batches b of (grad of the mean loss on b)^2, weighted by size

The first is that of EWC (Kirkpatrick et al., PNAS 2017), and holds a gradient for each
example of a batch in memory. The second costs one gradient. It is smaller, by a factor
of up to the batch size: the gradients of examples cancel before they are squared.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from pfljax.core.minibatches import in_batches
from pfljax.core.training import mean_over_examples
from pfljax.core.types import Array, Batch, ClientData, Key, Params

Loss = Callable[[Params, Batch, Key | None], Array]
Squares = Callable[[Loss, Params, Batch], Params]


def diagonal(
    loss: Loss,
    params: Params,
    data: ClientData,
    batch_size: int,
    squares: Squares,
) -> Params:
    """The Fisher diagonal over all examples of a client.

    It is 0 at running statistics, which have no gradient in evaluation mode. `squares`
    is `example_squares` or `batch_squares`.
    """

    def value(batch: Batch) -> Params:
        return squares(loss, params, batch)

    return mean_over_examples(value, data, batch_size)


def example_squares(loss: Loss, params: Params, batch: Batch) -> Params:
    """Mean over the examples that count of the squared gradient of each."""

    def gradient(example: Batch) -> Params:
        return jax.grad(loss)(params, example, None)

    gradients = jax.vmap(gradient)(in_batches(batch, 1))
    share = batch.mask / jnp.maximum(batch.mask.sum(), 1)

    def mean_square(leaf: Array) -> Array:
        return jnp.tensordot(share, jnp.square(leaf), 1, precision="highest")

    return jax.tree.map(mean_square, gradients)


def batch_squares(loss: Loss, params: Params, batch: Batch) -> Params:
    """The squared gradient of the batch's mean loss."""
    gradient = jax.grad(loss)(params, batch, None)
    return jax.tree.map(jnp.square, gradient)


KINDS = {"examples": example_squares, "batches": batch_squares}
