"""Draws of different clients: uniformly of some, or by weights; and their checks."""

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.shuffle import index_shuffle
from pfljax.core.types import Array, Key


def require_cohort(cohort: int, num_clients: int) -> None:
    """Raises a ValueError where there are fewer clients than places."""
    if cohort > num_clients:
        raise ValueError(
            f"the cohort is {cohort}, but {num_clients} clients can be chosen; "
            f"choose 1 <= cohort <= {num_clients}"
        )


def require_seconds(selection: str, seconds: np.ndarray) -> np.ndarray:
    """`seconds` f64[C] of each client; a ValueError unless all are finite and > 0."""
    seconds = np.asarray(seconds, np.float64)
    if seconds.ndim != 1 or not len(seconds):
        raise ValueError(
            f"{selection}: seconds has shape {list(seconds.shape)}; expected the "
            "seconds of a round of each client, [C]"
        )
    wrong = np.flatnonzero(~(np.isfinite(seconds) & (seconds > 0)))
    if len(wrong):
        client = wrong[0]
        raise ValueError(
            f"{selection}: seconds of client {client} is {seconds[client]:g}; "
            "expected a finite number > 0"
        )
    return seconds


def among(key: Key, eligible: Array, count: int) -> Array:
    """`count` of the clients that are `eligible`, bool[C], uniformly, i32[count].

    C in places behind the last of them. Where all are eligible these are the clients of
    `uniform`, of the same key. O(C log count) work.
    """
    num_clients = len(eligible)
    place = jnp.arange(num_clients)
    order = index_shuffle(place, num_clients, key)
    # The first of a shuffle of all clients, those that are not eligible left out.
    score = jnp.where(eligible[order], num_clients - place, 0)
    score, places = jax.lax.top_k(score, count)
    return jnp.where(score > 0, order[places], num_clients)


def weighted(key: Key, log_weight: Array, count: int) -> Array:
    """`count` different clients in proportion to exp(log_weight), f32[C], i32[count].

    One is drawn after another, of those that are left; weights of 0 come last. The
    largest of log weights with Gumbel noise are such a draw. O(C log count) work.
    """
    noise = jax.random.gumbel(key, log_weight.shape)
    _, ids = jax.lax.top_k(log_weight + noise, count)
    return ids.astype(jnp.int32)
