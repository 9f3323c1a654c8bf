"""Equal parts of the clients by speed: as expected, and then as the clock measured."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.types import Array, Cohort, Metrics
from pfljax.selection.reports import seconds_of

ROUNDING = 1e-5  # of a client's seconds: what lies so near is what was expected


class Speed(NamedTuple):
    """What the server knows of each client's speed."""

    tier_of: Array  # i32[C], 0 for the fastest
    seconds: Array  # f32[C], the mean of those measured; expected where none were
    turns: Array  # i32[C], how many were measured


def first_speed(expected: np.ndarray, tiers: int) -> Speed:
    """The tiers by the seconds that are expected of a round, f64[C]."""
    tier_of = np.empty(len(expected), np.int32)
    tier_of[_order(expected)] = _tier_by_place(len(expected), tiers)
    return Speed(
        tier_of=jnp.asarray(tier_of),
        seconds=jnp.asarray(expected, jnp.float32),
        turns=jnp.zeros(len(expected), jnp.int32),
    )


def measured(
    speed: Speed,
    expected: np.ndarray,
    members: Cohort,
    metrics: Metrics,
) -> Speed:
    """With the seconds of this round in the means; as it was without a clock."""
    timed = seconds_of(members, metrics)
    if timed is None:
        return speed
    ids, taken = timed
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


def resorted(speed: Speed, expected: np.ndarray, tiers: int, due: Array) -> Speed:
    """With tiers by the means, if that is due; equal clients stand as expected."""
    by_place = jnp.asarray(_tier_by_place(len(expected), tiers))
    # From this order on, a stable sort leaves ties as they were at first.
    before = jnp.asarray(_order(expected))

    def by_means() -> Array:
        order = before[jnp.argsort(speed.seconds[before], stable=True)]
        return jnp.zeros_like(speed.tier_of).at[order].set(by_place)

    tier_of = jax.lax.cond(due, by_means, lambda: speed.tier_of)
    return speed._replace(tier_of=tier_of)


def _order(expected: np.ndarray) -> np.ndarray:
    """The clients, the fastest first, i[C]."""
    return np.argsort(expected, kind="stable")


def _tier_by_place(num_clients: int, tiers: int) -> np.ndarray:
    """The tier of each place in that order, i32[C]."""
    parts = np.array_split(np.arange(num_clients), tiers)
    return np.repeat(np.arange(tiers, dtype=np.int32), [len(part) for part in parts])
