"""Tiers: equal groups of clients by speed, as expected or as the clock measured it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.types import Array, Cohort, Metrics
from pfljax.selection.reports import TURN_SECONDS

ROUNDING = 1e-5  # of a client's seconds: a difference below it is no measurement


class Speed(NamedTuple):
    """The speed of each client, as the server knows it."""

    tier_of: Array  # i32[C], 0 for the fastest
    seconds: Array  # f32[C], the mean of those measured; expected where none were
    turns: Array  # i32[C], the number of measurements


def expect(seconds: np.ndarray, tiers: int) -> Speed:
    """Sorts clients into tiers by the expected seconds of a round, f64[C]."""
    tier_of = np.empty(len(seconds), np.int32)
    tier_of[np.argsort(seconds, kind="stable")] = _tier_of_place(len(seconds), tiers)
    return Speed(
        tier_of=jnp.asarray(tier_of),
        seconds=jnp.asarray(seconds, jnp.float32),
        turns=jnp.zeros(len(seconds), jnp.int32),
    )


def measure(
    speed: Speed, expected: np.ndarray, cohort: Cohort, metrics: Metrics
) -> Speed:
    """Updates the means with the seconds of this round, if there is a clock.

    These are the seconds that the server waited for each, at most the deadline.
    """
    if TURN_SECONDS not in metrics:
        return speed
    taken = metrics[TURN_SECONDS]
    ids = jnp.where(taken > 0, cohort.ids, cohort.num_clients)
    known = jnp.asarray(expected, jnp.float32).at[ids].get(mode="clip")
    # Two programs may round one sum differently; that is no news of a client.
    is_expected = jnp.abs(taken - known) <= ROUNDING * known
    taken = jnp.where(is_expected, known, taken)
    before = speed.seconds.at[ids].get(mode="clip")
    turns = speed.turns.at[ids].get(mode="clip") + 1
    mean = before + (taken - before) / turns
    return speed._replace(
        seconds=speed.seconds.at[ids].set(mean, mode="drop"),
        turns=speed.turns.at[ids].set(turns, mode="drop"),
    )


def sort(speed: Speed, expected: np.ndarray, tiers: int, due: Array) -> Speed:
    """Sorts clients into tiers by their means, if that is due; ties as expected."""
    by_place = jnp.asarray(_tier_of_place(len(expected), tiers))
    # From this order on, a stable sort leaves ties as they were at first.
    before = jnp.asarray(np.argsort(expected, kind="stable"))

    def by_means() -> Array:
        order = before[jnp.argsort(speed.seconds[before], stable=True)]
        return jnp.zeros_like(speed.tier_of).at[order].set(by_place)

    tier_of = jax.lax.cond(due, by_means, lambda: speed.tier_of)
    return speed._replace(tier_of=tier_of)


def _tier_of_place(num_clients: int, tiers: int) -> np.ndarray:
    """Returns the tier of each place in the order of speed, i32[C]."""
    parts = np.array_split(np.arange(num_clients), tiers)
    return np.repeat(np.arange(tiers, dtype=np.int32), [len(part) for part in parts])
