"""Noise at the server that hides whether a client takes part (central privacy).

    Delta = 1/M [ sum_i clip(Delta_i, C) + N(0, z^2 C^2 I) ]

Every upload becomes its origin + Delta, so that Delta is whatever mean the method takes
of the changes. M is the number of clients asked: a denominator that does not depend on
who reports. All clients count equally, because weights by examples would change the
sensitivity. A run's summary has the epsilon of its rounds (`pfljax.simulate.privacy`).

McMahan et al., ICLR 2018, https://arxiv.org/abs/1710.06963, Algorithm 1.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.channel.base import (
    NONE,
    Channel,
    Sender,
    Sent,
    Start,
    refuse_mixed,
    with_change,
)
from pfljax.channel.clipping import clip, clipped_to
from pfljax.core.factories import component
from pfljax.core.keys import derive, map_with_keys
from pfljax.core.ranges import NotNegative, Positive, ProperShare
from pfljax.core.types import Array, Cohort, Key, Origin, Upload


@component
def dp(
    *, norm: Positive = 1.0, multiplier: NotNegative = 1.0, delta: ProperShare = 1e-5
) -> Channel:
    """Clips changes to `norm` and adds noise N(0, (multiplier norm)^2) to their sum.

    `multiplier` = 0 is `clip` alone.

    Args:
      norm: largest L2 norm of a change.
      multiplier: noise multiplier; the standard deviation is multiplier * norm.
      delta: the delta at which epsilon is reported.
    """
    if not multiplier:
        return clip(norm=norm)()

    def send(
        state: Any, sender: Sender, origin: Origin, upload: Upload, memory: Any
    ) -> Sent:
        refuse_mixed("dp", origin, upload)
        clipped, _ = clipped_to(norm, origin, upload)
        return Sent(clipped, memory, origin)

    def receive(
        state: Any, key: Key, uploads: Upload, starts: Any, cohort: Cohort
    ) -> tuple[Upload, Any]:
        return noised_mean(key, starts, uploads, cohort, multiplier * norm), state

    return NONE._replace(send=send, receive=receive, one_for_all=True)


@component
def adaptive_clip(
    *,
    norm: Positive = 0.1,
    quantile: ProperShare = 0.5,
    rate: Positive = 0.2,
    multiplier: NotNegative = 0.0,
    delta: ProperShare = 1e-5,
) -> Channel:
    """Clips changes to a norm that follows a quantile of their norms.

    C <- C exp(-rate (b - quantile)), where b is the share of changes that are not
    longer than C. Andrew et al., NeurIPS 2021, https://arxiv.org/abs/1905.03871,
    Algorithm 1. A `multiplier` adds noise as in `dp`, part of it to b.

    Args:
      norm: the first C.
      quantile: quantile of the lengths that C follows.
      rate: step size of log C.
      multiplier: noise multiplier of sum and share together; 0 only clips.
      delta: the delta at which epsilon is reported.
    """

    def init(start: Start) -> Any:
        return jnp.float32(norm)

    def send(
        state: Any, sender: Sender, origin: Origin, upload: Upload, memory: Any
    ) -> Sent:
        if multiplier:
            refuse_mixed("adaptive_clip", origin, upload)
        clipped, is_short = clipped_to(state, origin, upload)
        starts = origin if multiplier else ()
        return Sent(clipped, memory, (is_short.astype(jnp.float32), starts))

    def receive(
        state: Any, key: Key, uploads: Upload, reports: Any, cohort: Cohort
    ) -> tuple[Upload, Any]:
        is_short, starts = reports
        share_noise, sum_noise = noises(multiplier, count_asked(cohort))
        if multiplier:
            std = sum_noise * state
            uploads = noised_mean(key, starts, uploads, cohort, std)
        share = _short_share(key, is_short, cohort, share_noise if multiplier else None)
        stepped = state * jnp.exp(-rate * (share - quantile))
        return uploads, jnp.where(cohort.mask.sum() > 0, stepped, state)

    return NONE._replace(
        init=init,
        send=send,
        receive=receive,
        one_for_all=multiplier > 0,
        report_bits=1,
    )


def _short_share(key: Key, is_short: Array, cohort: Cohort, noise: Any) -> Array:
    """The share of short changes, f32[], among the clients asked, with noise.

    Without noise it is the share among those that reported: nothing has to be hidden.
    With noise a client adds 1/2 or -1/2 to the sum, so that its sensitivity is 1/2.
    """
    if noise is None:
        count = (is_short * cohort.mask).sum()
        return count / jnp.maximum(cohort.mask.sum(), 1)
    excess = ((is_short - 0.5) * cohort.mask).sum()
    noisy = excess + noise * jax.random.normal(derive(key, "share"))
    return 0.5 + noisy / jnp.maximum(count_asked(cohort), 1)


def noises(multiplier: Any, asked: Array) -> tuple[Array, Array]:
    """(deviation of the count of short changes, multiplier of the changes' noise).

    Both together are one mechanism of the `multiplier` z: z^-2 = sum^-2 + (2 count)^-2
    (Andrew et al., Theorem 1), since the count has a sensitivity of 1/2. The deviation
    of the count is M / 20 as in the paper, but at least z, since a smaller one would
    leave no noise for the sum.
    """
    count_noise = jnp.maximum(asked / 20, multiplier) * (multiplier > 0)
    of_count = jnp.maximum(2 * count_noise, 1e-12) ** -2.0
    whole = jnp.maximum(jnp.asarray(multiplier, jnp.float32), 1e-6) ** -2.0
    return count_noise, jnp.maximum(whole - of_count, 1e-12) ** -0.5


def noised_mean(
    key: Key, starts: Any, uploads: Upload, cohort: Cohort, std: Any
) -> Upload:
    """The uploads, each with the noised mean of all changes in place of its own."""
    asked = jnp.maximum(count_asked(cohort), 1)

    def noised(leaf_key: Key, leaf: Array) -> Array:
        total = jnp.tensordot(cohort.mask, leaf, 1, precision="highest")
        noise = jax.random.normal(leaf_key, total.shape, total.dtype)
        return (total + std * noise) / asked

    return with_change(starts, uploads, partial(map_with_keys, noised, key))


def count_asked(cohort: Cohort) -> Array:
    """The number of clients that were asked in the round, f32[]."""
    return (cohort.draws > 0).sum().astype(jnp.float32)
