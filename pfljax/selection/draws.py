"""Draws of different clients, uniformly or by weights; and their checks."""

import jax
import jax.numpy as jnp

from pfljax.core.shuffle import index_shuffle
from pfljax.core.types import Array, Key


def require_cohort(cohort: int, num_clients: int) -> None:
    """Raises a ValueError if there are fewer clients than places."""
    if cohort > num_clients:
        raise ValueError(
            f"the cohort is {cohort}, but {num_clients} clients can be selected; "
            f"choose 1 <= cohort <= {num_clients}"
        )


def among(key: Key, eligible: Array, count: int) -> Array:
    """Draws `count` of the clients that are `eligible`, bool[C], uniformly.

    If there are fewer, the places after them have the id C. If all are eligible, these
    are the clients that `uniform` draws with the same key. It takes O(C log count)
    work.
    """
    num_clients = len(eligible)
    position = jnp.arange(num_clients)
    order = index_shuffle(position, num_clients, key)
    # The first of a shuffle of all clients, without those that are not eligible.
    score = jnp.where(eligible[order], num_clients - position, 0)
    score, places = jax.lax.top_k(score, count)
    return jnp.where(score > 0, order[places], num_clients)


def draw_weighted(key: Key, log_weight: Array, count: int) -> Array:
    """Draws `count` different clients in proportion to exp(log_weight), f32[C].

    One is drawn after another, from those that are left; weights of 0 come last. The
    largest log weights with Gumbel noise are such a draw. It takes O(C log count) work.
    """
    noise = jax.random.gumbel(key, log_weight.shape)
    _, ids = jax.lax.top_k(log_weight + noise, count)
    return ids.astype(jnp.int32)


def ranks(values: Array) -> Array:
    """Returns the place of each value, from the largest, i32[C]; ties in order."""
    order = jnp.argsort(-values, stable=True)
    places = jnp.arange(len(values), dtype=jnp.int32)
    return jnp.zeros(len(values), jnp.int32).at[order].set(places)
