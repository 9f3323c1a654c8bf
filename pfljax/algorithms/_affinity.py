"""The models of all clients at a server, and how near one of them is to each other one.

For servers that mix models for each client by a matrix of affinities [C, C]. A row of
it is computed when its client is asked, of leaves [C, ...], in blocks of models: what
is made beside them stays below `BLOCK_BYTES`, however many clients there are. Of 1,000
TwoNN (797 MB) one row takes 50 blocks of 20.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import aggregation, tree
from pfljax.core.types import Array, Cohort, Params

BLOCK_BYTES = 2**24  # of models that are looked at together


class Models(NamedTuple):
    """What a server has of its clients."""

    params: Params  # leaves [C, ...], as last sent; at first the first parameters
    heard: Any  # f32[C], 1 for a client that has sent


def first_models(params: Params, num_clients: int) -> Models:
    """Everybody has the first parameters, and nobody has sent them."""

    def repeat(leaf: Array) -> Array:
        return jnp.broadcast_to(leaf, (num_clients, *leaf.shape))

    return Models(jax.tree.map(repeat, params), jnp.zeros(num_clients))


def receive(models: Models, uploads: Params, cohort: Cohort) -> Models:
    """The models, those of who reported replaced."""
    ids = aggregation.present_ids(cohort)
    return Models(
        params=tree.put(models.params, ids, uploads),
        heard=models.heard.at[ids].set(1, mode="drop"),
    )


def mean(models: Models) -> Params:
    """The mean of those heard; before the first of them, the first parameters."""
    nobody = models.heard.sum() == 0
    return aggregation.mean(models.params, jnp.where(nobody, 1, models.heard))


def has_sent(models: Models, client_id: Array) -> Array:
    """Whether a client has sent its model, bool[]; a client of no run has not."""
    return models.heard.at[client_id].get(mode="fill", fill_value=0) > 0


def others(models: Models, client_id: Array) -> Array:
    """1 for a client that has sent and is another one, f32[C]."""
    return models.heard.at[client_id].set(0, mode="drop")


def square_distances(
    stacked: Params,
    one: Params,
    centre: Params,
) -> Array:
    """||m - one||^2 of each model m, without running statistics, f32[C].

    As a matrix product, |m|^2 - 2 <m, one> + |one|^2, whose rounding is that of the
    squares. So all lengths are taken from `centre`, which should lie among the models.
    """
    away = tree.sub(one, centre)
    squares, products = _products(stacked, away, centre)
    # Of equal models rounding may leave less than 0.
    return jnp.maximum(squares - 2 * products + tree.square_norm(away), 0)


def cosines(stacked: Params, one: Params) -> Array:
    """The cosine of each model with `one`, f32[C]; 0 with a model of zeros."""
    squares, products = _products(stacked, one, tree.zeros(one))
    lengths = squares * tree.square_norm(one)
    positive = jnp.where(lengths > 0, lengths, 1)
    return jnp.where(lengths > 0, products / jnp.sqrt(positive), 0)


def inner_products(stacked: Params, one: Params) -> Array:
    """<m, one> of each model m, without running statistics, f32[C]."""
    _, products = _products(stacked, one, tree.zeros(one))
    return products


def matrix(of_one: Callable[[Array], Array], num_clients: int) -> Array:
    """The rows `of_one` (client number) -> f32[C] of all clients, f32[C, C]."""
    return jax.lax.map(of_one, jnp.arange(num_clients))


def _products(
    stacked: Params,
    one: Params,
    centre: Params,
) -> tuple[Array, Array]:
    """(|m - centre|^2, <m - centre, one>) of each model m, f32[C] both."""
    trees = map(tree.parameters, (stacked, one, centre))
    leaves, ones, centres = map(jax.tree.leaves, trees)
    count = len(leaves[0])
    size = rows_of_a_block(leaves)

    def one_block(first: Array) -> tuple[Array, Array]:
        squares, products = jnp.zeros((2, size))
        for leaf, other, middle in zip(leaves, ones, centres, strict=True):
            block = jax.lax.dynamic_slice_in_dim(leaf, first, size) - middle
            block = block.reshape(size, -1)
            squares += jnp.sum(jnp.square(block), 1)
            # An accelerator's default would round factors to a few bits.
            products += jnp.matmul(block, other.ravel(), precision="highest")
        return squares, products

    # The last block reaches back, so that all have one size.
    starts = jnp.minimum(jnp.arange(0, count, size), count - size)
    sums = jax.lax.map(one_block, starts)
    places = starts[:, None] + jnp.arange(size)

    def in_order(values: Array) -> Array:
        return jnp.zeros(count).at[places].set(values)

    return jax.tree.map(in_order, sums)


def rows_of_a_block(leaves: list[Array]) -> int:
    """How many of the stacked models are looked at together."""
    count = len(leaves[0])
    of_one = max(tree.nbytes(leaves) // count, 1)
    return min(max(BLOCK_BYTES // of_one, 1), count)
