"""Cohorts of useful and fast clients, and of some never seen.

Lai et al., Oort, OSDI 2021, https://arxiv.org/abs/2010.06081, Algorithm 1; as in the
authors' code (FedScale) where the paper leaves units open.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.aggregation import record
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.ranges import AtLeastOne, Count, NotNegative, Share
from pfljax.core.types import Array, Cohort, Key, Metrics
from pfljax.selection.base import Selection
from pfljax.selection.draws import ranks, require_cohort
from pfljax.selection.reports import losses

CUT = 0.95  # of the lowest score that would be exploited: clients above may be drawn
STEP = 0.05  # of clients, by which the pacer moves the quantile that T is


class State(NamedTuple):
    """The knowledge of the server of each client."""

    round: Array  # i32[], rounds finished
    utility: Array  # f32[C], examples times the last loss
    last: Array  # i32[C], when it reported last, 1 for the first round; 0 for never
    reports: Array  # i32[C], how often it has reported
    before: Array  # f32[], sum of the utilities of the last window
    current: Array  # f32[], of this window so far
    steps: Array  # i32[], of the pacer so far


@component
def oort(
    cohort: AtLeastOne,
    sizes: np.ndarray,
    seconds: np.ndarray,
    *,
    exploration: Share = 0.9,
    decay: Share = 0.98,
    least: Share = 0.2,
    penalty: NotNegative = 2.0,
    preferred: Share = 0.5,
    pacer: Count = 20,
    cap: Share = 0.95,
    most: Count = 0,
) -> Selection:
    """Selects the clients with the best scores, and a share of new clients.

    The share of new clients is exploration * decay^round, but at least `least`. Their
    places are rounded down: 0.2 of a cohort of 4 is none. New clients are drawn in
    proportion to 1 / seconds. The others are drawn in proportion to their scores, among
    those whose score is at least nearly that of the last one with a place. If there are
    too few of one kind, more of the other are drawn. In round r, with L the round of
    the client's last report,

        score = (utility + sqrt(0.1 ln r / L)) * (T / seconds)^penalty,

    where utilities are cut off at their quantile `cap` and scaled to [0, 1], so that a
    few outliers are not drawn again and again. The second factor is 1 for a client that
    is not slower than T, the quantile `preferred` of all seconds. With preferred = 1 or
    penalty = 0 speed does not count. The pacer moves the quantile up by 0.05 whenever
    the utilities of `pacer` rounds (20 in the paper) sum to less than those of as many
    rounds before. Seconds are the expected ones of a round, which follow from the
    profile of the devices; without one, an example takes a second. It takes O(C log C)
    work.

    Differs from the paper: utility is the number of examples times the mean loss,
    because the mean of squares is not reported. As in the authors' code, T moves by
    quantiles, and windows are compared when one ends, not in each round.

    Args:
      exploration: first share of the places for new clients.
      decay: factor of that share after each round.
      least: smallest such share.
      penalty: exponent of slow clients' scores; 0 for none.
      preferred: quantile of seconds above which a client is slow.
      pacer: rounds of a window of the pacer; 0 for none.
      cap: quantile at which utilities are cut off; 1 cuts none.
      most: a client that has reported so many times is drawn only if there are too
        few others; 0 for no limit.
    """
    seconds = np.asarray(seconds, np.float64)
    num_clients = len(sizes)
    require_cohort(cohort, num_clients)
    examples = jnp.asarray(sizes, jnp.float32)
    wanted = _prefer(seconds, preferred, pacer)
    expected = jnp.asarray(seconds, jnp.float32)
    log_speed = jnp.asarray(-np.log(seconds), jnp.float32)

    def choose(state: State, key: Key) -> Array:
        share = jnp.maximum(exploration * decay**state.round, least)
        explored = jnp.floor(share * cohort).astype(jnp.int32)
        late = jnp.take(wanted, state.steps, mode="clip") / expected
        scores = _scores(state, jnp.minimum(late, 1) ** penalty, cap)
        tired = state.reports >= most if most else jnp.zeros(num_clients, bool)
        return _choose(state, key, scores, log_speed, cohort, explored, tired)

    def update(state: State, members: Cohort, metrics: Metrics) -> State:
        utility = examples[members.ids] * losses(metrics)
        after = _learn(state, utility, members)
        total = jnp.where(members.mask > 0, utility, 0).sum()
        return _pace(after, total, pacer) if pacer else after

    return Selection(
        cohort=cohort, choose=choose, init=lambda: _init(num_clients), update=update
    )


def _init(num_clients: int) -> State:
    """Makes the state before the first round."""
    return State(
        round=jnp.int32(0),
        utility=jnp.zeros(num_clients),
        last=jnp.zeros(num_clients, jnp.int32),
        reports=jnp.zeros(num_clients, jnp.int32),
        before=jnp.float32(0),
        current=jnp.float32(0),
        steps=jnp.int32(0),
    )


def _learn(state: State, utility: Array, members: Cohort) -> State:
    """Records what the clients of a round have reported."""
    finished = state.round + 1
    reports = state.reports[members.ids] + 1
    return state._replace(
        round=finished,
        utility=record(state.utility, utility, members),
        last=record(state.last, finished, members),
        reports=record(state.reports, reports, members),
    )


def _prefer(seconds: np.ndarray, preferred: float, pacer: int) -> Array:
    """Returns T after each number of the pacer's steps, f32[S]; the last for more."""
    quantiles = np.array([preferred])
    if pacer:
        most = math.ceil((1 - preferred) / STEP)
        quantiles = np.minimum(preferred + STEP * np.arange(most + 1), 1)
    return jnp.asarray(np.quantile(seconds, quantiles), jnp.float32)


def _pace(state: State, total: Array, window: int) -> State:
    """Adds the utilities of a round to the window, and maybe moves T."""
    current = state.current + total
    is_over = state.round % window == 0
    # Before the first window there is 0, and no utility is below that.
    falls = is_over & (current < state.before)
    return state._replace(
        before=jnp.where(is_over, current, state.before),
        current=jnp.where(is_over, 0, current),
        steps=state.steps + falls,
    )


def _scores(state: State, speed: Array, cap: float) -> Array:
    """Returns the score of each client, f32[C]; 0 of one never seen."""
    seen = state.last > 0
    ascending = jnp.sort(jnp.where(seen, state.utility, jnp.inf))
    # The first utility above the share `cap`, as in the authors' code.
    place = jnp.minimum((cap * seen.sum()).astype(jnp.int32), seen.sum() - 1)
    lowest, highest = ascending[0], ascending[place]
    # If all are alike, or none was seen, the range is 0, or no number.
    spread = jnp.where(highest > lowest, highest - lowest, 1.0)
    reward = (jnp.minimum(state.utility, highest) - lowest) / spread
    coming = (state.round + 1).astype(jnp.float32)
    bonus = jnp.sqrt(0.1 * jnp.log(coming) / jnp.maximum(state.last, 1))
    return jnp.where(seen, (reward + bonus) * speed, 0.0)


def _choose(
    state: State,
    key: Key,
    scores: Array,
    log_speed: Array,
    cohort: int,
    explored: Array,
    tired: Array,
) -> Array:
    """Chooses `explored` clients never seen, if possible, and others by score.

    Clients that are `tired`, bool[C], come last.
    """
    num_clients = len(scores)
    seen = state.last > 0
    usable = seen & ~tired
    scores = jnp.where(usable, scores, 0)
    exploited = jnp.minimum(cohort - explored, usable.sum())
    # The lowest score with a place; without places all may be drawn.
    last = jnp.maximum(exploited - 1, 0)
    lowest = jax.lax.top_k(scores, cohort)[0][last]
    admitted = usable & (scores >= CUT * lowest)
    noise = jax.random.gumbel(derive(key, "exploited"), scores.shape)
    # A score of 0 is as small as may be, but it is no reason for a tie.
    by_score = jnp.log(jnp.maximum(scores, 1e-30)) + noise
    # Clients that are not admitted come behind, then the tired, and those never seen.
    seen_rank = ranks(by_score - 1e3 * ~admitted - 1e4 * tired - 1e6 * ~seen)
    noise = jax.random.gumbel(derive(key, "explored"), scores.shape)
    unseen_rank = ranks(log_speed + noise - 1e6 * seen)
    first = seen & (seen_rank < exploited)
    group = jnp.where(first, 2, jnp.where(seen, 0, 1))
    rank = jnp.where(seen, seen_rank, unseen_rank)
    _, ids = jax.lax.top_k(group * num_clients - rank, cohort)
    return ids.astype(jnp.int32)
