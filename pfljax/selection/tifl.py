"""Cohorts of one tier: of clients that are about equally fast.

Chai et al., HPDC 2020, https://arxiv.org/abs/2001.09249: TiFL, Algorithms 1 and 2.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.ranges import AtLeastOne, Count
from pfljax.core.types import Array, Cohort, Key, Metrics
from pfljax.selection.base import Selection
from pfljax.selection.draws import among, ranks, require_cohort
from pfljax.selection.reports import losses
from pfljax.selection.tiers import Speed, expect, measure, sort

Policy = Literal["adaptive", "uniform", "random", "fast", "slow"]
RANDOM = (0.7, 0.1, 0.1, 0.05, 0.05)  # of five tiers, the fastest first
NO_TIER = -1  # of an empty place in the cohort


class State(NamedTuple):
    """The knowledge of the server of tiers, and their clients."""

    round: Array  # i32[], rounds finished
    credits: Array  # i32[T], rounds that a tier may still be chosen for
    probability: Array  # f32[T]
    loss: Array  # f32[T], of the tier's cohort when it was last chosen
    before: Array  # f32[T], the losses at the end of the last interval
    speed: Speed


@component
def tifl(
    cohort: AtLeastOne,
    seconds: np.ndarray,
    rounds: AtLeastOne,
    *,
    tiers: AtLeastOne = 5,
    policy: Policy = "adaptive",
    interval: AtLeastOne = 10,
    probabilities: Any = None,
    retier: Count | None = None,
) -> Selection:
    """Selects the clients of one tier of equally fast clients, uniformly.

    A tier is drawn with fixed probabilities (the policies uniform, random, fast and
    slow, or `probabilities`, the fastest tier first), or by the adaptive policy: a tier
    can be drawn ceil(rounds / tiers) times. Every `interval` rounds, losses are
    compared with those `interval` rounds ago. If the tier of this round has not
    improved, tiers with a higher loss become likelier. When no tier can be drawn any
    more, all are equally likely. With one tier this is `uniform`. It takes O(C) work,
    and O(C log C) when clients are sorted.

    At first clients are sorted by the expected seconds of a round, which follow from
    the profile of the devices; without one, an example takes a second. Every `retier`
    rounds they are sorted by the mean of their measured seconds. A client that is too
    late counts with the deadline, and one for which the server did not wait does not
    count. Tiers stay the same without a clock, and if devices without jitter finish all
    their work in time.

    Differs from the paper: clients are measured when they take part, not in rounds
    before the first, and none is left out. The loss of a tier is the training loss of
    its last cohort; in the paper all clients of the tier evaluate test data in every
    round.

    Args:
      tiers: number of groups of equally fast clients.
      policy: how a tier is drawn: "adaptive", or with fixed probabilities.
      interval: rounds between two comparisons of the losses.
      probabilities: probability of each tier, the fastest first; None for those of the
        policy.
      retier: rounds after which clients are sorted again, 0 for never; None is
        `interval` for the adaptive policy, and never for others.
    """
    seconds = np.asarray(seconds, np.float64)
    _require_tiers(len(seconds), tiers, cohort)
    fixed = _fixed_probabilities(policy, probabilities, tiers)
    if retier is None:
        retier = interval if fixed is None else 0
    learns = fixed is None or retier > 0
    expected = expect(seconds, tiers).tier_of

    def choose(state: Any, key: Key) -> Array:
        weight = jnp.asarray(fixed) if fixed is not None else _weight(state)
        tier = jax.random.categorical(derive(key, "tier"), jnp.log(weight))
        tier_of = state.speed.tier_of if learns else expected
        return among(derive(key, "members"), tier_of == tier, cohort)

    if not learns:
        return Selection(cohort=cohort, choose=choose)

    def update(state: State, members: Cohort, metrics: Metrics) -> State:
        after = state._replace(round=state.round + 1)
        if fixed is None:
            after = _learn(after, members, metrics, interval)
        if not retier:
            return after
        speed = measure(state.speed, seconds, members, metrics)
        due = after.round % retier == 0
        return after._replace(speed=sort(speed, seconds, tiers, due))

    return Selection(
        cohort=cohort,
        choose=choose,
        init=lambda: _init(seconds, rounds, tiers),
        update=update,
    )


def _init(seconds: np.ndarray, rounds: int, tiers: int) -> State:
    """Makes the state before the first round; its arrays are new, as it is donated."""
    return State(
        round=jnp.int32(0),
        credits=jnp.full(tiers, -(-rounds // tiers), jnp.int32),
        probability=jnp.full(tiers, 1 / tiers, jnp.float32),
        # Nothing is known of the tiers yet: none is worse.
        loss=jnp.full(tiers, jnp.inf, jnp.float32),
        before=jnp.full(tiers, jnp.inf, jnp.float32),
        speed=expect(seconds, tiers),
    )


def _require_tiers(num_clients: int, tiers: int, cohort: int) -> None:
    """Raises a ValueError for tiers of fewer clients than a cohort."""
    require_cohort(cohort, num_clients)
    smallest = num_clients // tiers
    if smallest < cohort:
        raise ValueError(
            f"tifl: the cohort is {cohort}, but a tier has {smallest} of the "
            f"{num_clients} clients; choose fewer tiers than {tiers}, or a smaller "
            "cohort"
        )


def _fixed_probabilities(
    policy: Policy, probabilities: Any, tiers: int
) -> np.ndarray | None:
    """Returns the probabilities of a fixed policy, f32[T]; None of the adaptive one."""
    if probabilities is None and policy == "adaptive":
        return None
    known = {
        "uniform": np.full(tiers, 1 / tiers),
        "fast": np.eye(tiers)[0],
        "slow": np.eye(tiers)[-1],
        "random": RANDOM,
    }
    values = known[policy] if probabilities is None else probabilities
    try:
        array = np.atleast_1d(np.asarray(values, np.float64))
    except (TypeError, ValueError):
        array = np.array([np.nan])
    is_one = len(array) == tiers and (array >= 0).all()
    if not is_one or not np.isclose(array.sum(), 1):
        raise ValueError(
            f"tifl: probabilities are {values}; expected {tiers} numbers >= 0 that sum "
            "to 1, one a tier, the fastest first"
        )
    return array.astype(np.float32)


def _weight(state: State) -> Array:
    """Returns the weights by which a tier is drawn, f32[T]."""
    has_credit = state.credits > 0
    likely = jnp.where(has_credit, state.probability, 0)
    # Within an interval the likely ones may have used up their credits.
    left = jnp.where(likely.sum() > 0, likely, has_credit.astype(jnp.float32))
    return jnp.where(left.sum() > 0, left, 1.0)


def _mean_loss(cohort: Cohort, metrics: Metrics, otherwise: Array) -> Array:
    """Returns the mean loss of the clients that reported; `otherwise` of none."""
    # A masked place may have a loss that is no number, but `losses` makes it one.
    total = jnp.sum(cohort.mask * losses(metrics))
    count = cohort.mask.sum()
    return jnp.where(count > 0, total / jnp.maximum(count, 1), otherwise)


def _learn(state: State, members: Cohort, metrics: Metrics, interval: int) -> State:
    """Updates the tiers after a round of one tier's members.

    `state.round` counts this round already. A round without members changes no credit
    and no loss.
    """
    # All members are of one tier, which the maximum finds among empty places.
    of_member = state.speed.tier_of[members.ids]
    tier = jnp.where(members.draws > 0, of_member, NO_TIER).max()
    loss = _mean_loss(members, metrics, state.loss[tier])
    # As an index, NO_TIER would be the last tier. So it becomes an index past the end,
    # where "drop" writes nothing, and "clip" reads the last tier.
    past_the_end = len(state.loss)
    tier = jnp.where(tier == NO_TIER, past_the_end, tier)
    after = state.loss.at[tier].set(loss, mode="drop")
    credits = state.credits.at[tier].add(-1, mode="drop")
    due = state.round % interval == 0
    before = state.before.at[tier].get(mode="clip")
    no_better = after.at[tier].get(mode="clip") >= before
    changed = _by_rank(after, credits > 0)
    return state._replace(
        credits=credits,
        probability=jnp.where(due & no_better, changed, state.probability),
        loss=after,
        before=jnp.where(due, after, state.before),
    )


def _by_rank(loss: Array, has_credit: Array) -> Array:
    """Returns (n - r) / (n (n + 1) / 2) of n tiers with credit, r = 0 for the worst."""
    count = has_credit.sum()
    # Before a tier: those with credit that are worse, or equally bad and faster.
    rank = ranks(jnp.where(has_credit, loss, -jnp.inf))
    share = (count - rank) / jnp.maximum(count * (count + 1) / 2, 1)
    return jnp.where(has_credit, share, 0.0)
