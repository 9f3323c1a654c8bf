"""Virtual seconds of the clients of a round, and deadlines.

A client takes the time of its download, its gradients and its upload, times its
jitter in this round. The server waits for the slowest, but not beyond a deadline:

    seconds of four clients       3   8   5   2     no deadline    the round takes 8
                                  3   -   5   2     deadline 6     it takes 6
                                  -   -   -   -     deadline 1     it takes 1

A late client does not report, like a straggler whose work is dropped. Nothing is
measured, so that a seed has the same times on every machine. The work of a client is
what its method declares (`Algorithm.work`): one that trains two models on a minibatch
takes twice as long as one that trains one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.keys import derive
from pfljax.core.types import Array, Key
from pfljax.data.profiles import Profile, expected_seconds

LEAST_JITTER = -6.0  # in sigmas; no client is faster than this


class Clock(NamedTuple):
    """The devices of a run, and the bytes that each client sends in a round."""

    profile: Profile
    down: np.ndarray  # f64[C], bytes of a round
    up: np.ndarray  # f64[C]
    deadline: float | None = None  # of a round, in seconds


def mean_seconds(clock: Clock, work: Any) -> Any:
    """Seconds of each client in a round of so much work, without jitter, f[C]."""
    return expected_seconds(clock.profile, work, clock.down, clock.up)


def available(clock: Clock, key: Key, ids: Array) -> Array:
    """The cohort, i32[M], with an empty place for each client that is not available.

    `key` is that of the round.
    """
    chance = np.asarray(clock.profile.availability, np.float32)
    # Decided on the host, since most profiles need no draw here.
    if (chance == 1).all():
        return ids
    draws = _by_client(jax.random.uniform, derive(key, "available"), ids)
    takes_part = draws < _take(chance, ids)
    return jnp.where(takes_part, ids, len(chance))


def draw_seconds(clock: Clock, key: Key, ids: Array, work: Array) -> Array:
    """Seconds of these clients in the round of `key`, f32[M]."""
    profile = jax.tree.map(lambda values: _take(values, ids), clock.profile)
    seconds = expected_seconds(
        profile, work, _take(clock.down, ids), _take(clock.up, ids)
    )
    if not np.any(clock.profile.jitter):
        return seconds
    noise = _by_client(jax.random.normal, derive(key, "jitter"), ids)
    return seconds * jnp.exp(profile.jitter * noise)


def on_time(
    clock: Clock,
    key: Key,
    ids: Array,
    work: Array,
    mask: Array,
) -> tuple[Array, Array]:
    """(mask of clients that report in time, seconds of waiting for each), f32[M].

    `work` f32[M] is in gradients of minibatches (`pfljax.engine.count_gradients`).
    The server waits neither for empty places nor for stragglers with dropped work.
    """
    is_asked = (mask > 0) & (ids < len(clock.down))
    seconds = jnp.where(is_asked, draw_seconds(clock, key, ids, work), 0)
    mask = jnp.where(is_asked, mask, 0)
    if clock.deadline is None:
        return mask, seconds
    is_late = seconds > clock.deadline
    mask = jnp.where(is_late, 0, mask)
    return mask, jnp.minimum(seconds, clock.deadline)


def fastest(clock: Clock, work: np.ndarray) -> float:
    """A lower bound of the seconds of any client with `work` [C]."""
    seconds = mean_seconds(clock, work)
    return float(np.min(seconds * np.exp(LEAST_JITTER * clock.profile.jitter)))


def _take(values: Any, ids: Array) -> Array:
    """The values of these clients, f32[M]; an empty place has that of some client."""
    return jnp.take(jnp.asarray(values, jnp.float32), ids, mode="clip")


def _by_client(draw: Any, key: Key, ids: Array) -> Array:
    """A draw by client number, not by place in the cohort, f32[M]."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, ids)
    return jax.vmap(draw)(keys)
