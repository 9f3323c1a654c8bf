"""How much a client's rows say of each parameter: the diagonal of the Fisher matrix.

It is the empirical one, of the labels that the rows have, in evaluation mode:

    rows      mean over rows x of (grad loss(x))^2
    batches   mean over batches b of (grad of the mean loss on b)^2, weighted by rows

The first is that of EWC (Kirkpatrick et al., PNAS 2017) and holds a gradient a row of a
batch in memory. The second costs one gradient. It is smaller, by up to the size of a
batch: the gradients of rows cancel before they are squared.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from pfljax.core.minibatches import in_batches
from pfljax.core.training import mean_over_rows
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
    """The Fisher diagonal over all of a client's rows.

    It is 0 at running statistics, which have no gradient in evaluation mode. `squares`
    is `example_squares` or `batch_squares`: what one batch gives.
    """

    def value(batch: Batch) -> Params:
        return squares(loss, params, batch)

    return mean_over_rows(value, data, batch_size)


def example_squares(loss: Loss, params: Params, batch: Batch) -> Params:
    """Mean over the rows that count of the squared gradient of each."""

    def one_example(row: Batch) -> Params:
        return jax.grad(loss)(params, row, None)

    gradients = jax.vmap(one_example)(in_batches(batch, 1))
    share = batch.mask / jnp.maximum(batch.mask.sum(), 1)

    def mean_square(leaf: Array) -> Array:
        return jnp.tensordot(share, jnp.square(leaf), 1, precision="highest")

    return jax.tree.map(mean_square, gradients)


def batch_squares(loss: Loss, params: Params, batch: Batch) -> Params:
    """The squared gradient of the batch's mean loss."""
    gradient = jax.grad(loss)(params, batch, None)
    return jax.tree.map(jnp.square, gradient)


KINDS = {"rows": example_squares, "batches": batch_squares}
