"""The models of all clients at a server, and the distances and cosines between them.

This is for servers that mix models for each client by a matrix of affinities [C, C].
The row of a client is computed when the client is selected, from leaves [C, ...], in
blocks of models: intermediate results stay below `BLOCK_BYTES`, however many clients
there are. For 1,000 TwoNN (797 MB), one row takes 50 blocks of 20 models.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import aggregation, tree
from pfljax.core.types import Array, Cohort, Params

BLOCK_BYTES = 2**24  # of the models in a block


class Models(NamedTuple):
    """The models of all clients at the server."""

    params: Params  # leaves [C, ...], as last sent; before that the first parameters
    heard: Any  # f32[C], 1 for a client that has sent


def first_models(params: Params, num_clients: int) -> Models:
    """All clients have the first parameters, and none has sent a model."""
    return Models(tree.stack_copies(params, num_clients), jnp.zeros(num_clients))


def receive(models: Models, uploads: Params, cohort: Cohort) -> Models:
    """The models, with new ones of the clients that reported."""
    return Models(
        params=aggregation.record(models.params, uploads, cohort),
        heard=aggregation.record(models.heard, 1, cohort),
    )


def mean(models: Models) -> Params:
    """The mean of the models that were sent; before that, the first parameters."""
    nothing = models.heard.sum() == 0
    return aggregation.mean(models.params, jnp.where(nothing, 1, models.heard))


def has_sent(models: Models, client_id: Array) -> Array:
    """Whether a client has sent its model, bool[]; False if it is not in the run."""
    return tree.take_or(models.heard, client_id) > 0


def others(models: Models, client_id: Array) -> Array:
    """1 for every other client that has sent its model, f32[C]."""
    return models.heard.at[client_id].set(0, mode="drop")


def square_distances(
    stacked: Params,
    model: Params,
    centre: Params,
) -> Array:
    """||m - model||^2 for each m of the stack, without running statistics, f32[C].

    It is computed as |m|^2 - 2 <m, model> + |model|^2, whose rounding errors are those
    of the squares. So all lengths are taken from `centre`, which should lie among the
    models.
    """
    away = tree.sub(model, centre)
    squares, products = _products(stacked, away, centre)
    # For equal models rounding may give less than 0.
    return jnp.maximum(squares - 2 * products + tree.square_norm(away), 0)


def cosines(stacked: Params, model: Params) -> Array:
    """The cosine of each of the stack with `model`, f32[C]; 0 for a model of zeros."""
    squares, products = _products(stacked, model, tree.zeros(model))
    lengths = squares * tree.square_norm(model)
    positive = jnp.where(lengths > 0, lengths, 1)
    return jnp.where(lengths > 0, products / jnp.sqrt(positive), 0)


def inner_products(stacked: Params, model: Params) -> Array:
    """<m, model> for each m of the stack, without running statistics, f32[C]."""
    _, products = _products(stacked, model, tree.zeros(model))
    return products


def matrix(compute_row: Callable[[Array], Array], num_clients: int) -> Array:
    """The matrix f32[C, C] whose rows are `compute_row` (client id) -> f32[C]."""
    return jax.lax.map(compute_row, jnp.arange(num_clients))


def _products(
    stacked: Params,
    model: Params,
    centre: Params,
) -> tuple[Array, Array]:
    """(|m - centre|^2, <m - centre, model>) for each m of the stack, f32[C] both."""
    trees = map(tree.parameters, (stacked, model, centre))
    leaves, others, centres = map(jax.tree.leaves, trees)
    count = len(leaves[0])
    size = models_of_a_block(leaves)

    def compute_block(first: Array) -> tuple[Array, Array]:
        squares, products = jnp.zeros((2, size))
        for leaf, other, middle in zip(leaves, others, centres, strict=True):
            block = jax.lax.dynamic_slice_in_dim(leaf, first, size) - middle
            block = block.reshape(size, -1)
            squares += jnp.sum(jnp.square(block), 1)
            # An accelerator's default would round factors to a few bits.
            products += jnp.matmul(block, other.ravel(), precision="highest")
        return squares, products

    # The last block overlaps with the one before, so that all have the same size.
    starts = jnp.minimum(jnp.arange(0, count, size), count - size)
    sums = jax.lax.map(compute_block, starts)
    places = starts[:, None] + jnp.arange(size)

    def in_order(values: Array) -> Array:
        return jnp.zeros(count).at[places].set(values)

    return jax.tree.map(in_order, sums)


def models_of_a_block(leaves: list[Array]) -> int:
    """The number of stacked models in a block."""
    count = len(leaves[0])
    model_bytes = max(tree.nbytes(leaves) // count, 1)
    return min(max(BLOCK_BYTES // model_bytes, 1), count)
