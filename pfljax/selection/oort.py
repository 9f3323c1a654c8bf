"""Cohorts of the clients that are useful and fast, and of some never seen.

Lai et al., Oort, OSDI 2021, https://arxiv.org/abs/2010.06081, Algorithm 1; as in the
authors' code (FedScale) where the paper leaves units open.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.keys import derive
from pfljax.core.types import Array, Cohort, Key, Metrics
from pfljax.registry import AtLeastOne, Count, NotNegative, Share, checked
from pfljax.selection.base import Selection
from pfljax.selection.draws import require_cohort, require_seconds
from pfljax.selection.reports import ids_of, losses_of

CUT = 0.95  # of the lowest score that would be exploited: who has more may be drawn
STEP = 0.05  # of clients, by which the pacer moves the quantile that T is


class State(NamedTuple):
    """What the server has learned of each client."""

    round: Array  # i32[], rounds finished
    utility: Array  # f32[C], rows times the last loss
    last: Array  # i32[C], when it reported last, 1 for the first round; 0 for never
    before: Array  # f32[], sum of the utilities that the window before this one brought
    current: Array  # f32[], of this window so far
    steps: Array  # i32[], of the pacer so far


@checked
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
) -> Selection:
    """A share of places goes to clients never seen, others to those of best score.

    The share is exploration * decay^round, `least` at least, and its places are
    rounded down: .2 of a cohort of 4 is none. Clients never seen are drawn in
    proportion to 1 / seconds; of the others those with nearly the score of the lowest
    that has a place, in proportion to it. Where there are too few of the one, more of
    the other are drawn. With round r, and L the round of the client's last report:

        score = (utility, from 0 to 1 of all seen, + sqrt(.1 ln r / L))
                * (T / seconds)^penalty  of a client slower than T

    T is the quantile `preferred` of seconds; 1 as well as penalty = 0 ask for no speed.
    The pacer moves it up by .05, as often as the utilities of `pacer` rounds, 20 in the
    paper, sum to less than those of as many rounds before; 0 for a T that stays.
    Seconds are those expected of a round: by a profile of the devices, or of one second
    a row without. O(C log C) work.

    Differs from the paper: utility is rows times the mean loss, for the mean of squares
    is not reported. As in the authors' code, T moves by quantiles, and windows are
    compared when one is over, not in each round.

    Args:
      exploration: share of places for clients never seen, at first.
      decay: of that share a round.
      least: of that share.
      penalty: exponent of slow clients' scores; 0 for none.
      preferred: quantile of seconds that counts as slow.
      pacer: rounds of a window of the pacer; 0 for none.
    """
    seconds = require_seconds("oort", seconds)
    num_clients = len(sizes)
    require_cohort(cohort, num_clients)
    rows = jnp.asarray(sizes, jnp.float32)
    wanted = _preferred(seconds, preferred, pacer)
    of_round = jnp.asarray(seconds, jnp.float32)
    log_speed = jnp.asarray(-np.log(seconds), jnp.float32)

    def choose(state: State, key: Key) -> Array:
        share = jnp.maximum(exploration * decay**state.round, least)
        explored = jnp.floor(share * cohort).astype(jnp.int32)
        late = jnp.take(wanted, state.steps, mode="clip") / of_round
        scores = _scores(state, jnp.minimum(late, 1) ** penalty)
        return _chosen(state, key, scores, log_speed, cohort, explored)

    def update(state: State, members: Cohort, metrics: Metrics) -> State:
        utility = rows[members.ids] * losses_of(metrics)
        after = _reported(state, members, utility)
        brought = jnp.where(members.mask > 0, utility, 0).sum()
        return _paced(after, brought, pacer) if pacer else after

    return Selection(
        cohort=cohort,
        choose=choose,
        init=lambda: _first(num_clients),
        update=update,
    )


def _first(num_clients: int) -> State:
    return State(
        round=jnp.int32(0),
        utility=jnp.zeros(num_clients),
        last=jnp.zeros(num_clients, jnp.int32),
        before=jnp.float32(0),
        current=jnp.float32(0),
        steps=jnp.int32(0),
    )


def _reported(state: State, members: Cohort, utility: Array) -> State:
    """The state with the utility, f32[M], of each member that reported."""
    ids = ids_of(members)
    finished = state.round + 1
    return state._replace(
        round=finished,
        utility=state.utility.at[ids].set(utility, mode="drop"),
        last=state.last.at[ids].set(finished, mode="drop"),
    )


def _preferred(seconds: np.ndarray, preferred: float, pacer: int) -> Array:
    """T after each number of the pacer's steps, f32[S]; the last for all above."""
    quantiles = np.array([preferred])
    if pacer:
        most = math.ceil((1 - preferred) / STEP)
        quantiles = np.minimum(preferred + STEP * np.arange(most + 1), 1)
    return jnp.asarray(np.quantile(seconds, quantiles), jnp.float32)


def _paced(state: State, brought: Array, window: int) -> State:
    """The state with the utilities that a round brought, and maybe a later T."""
    current = state.current + brought
    is_over = state.round % window == 0
    # Before the first window there is 0, and no utility is below that.
    falls = is_over & (current < state.before)
    return state._replace(
        before=jnp.where(is_over, current, state.before),
        current=jnp.where(is_over, 0, current),
        steps=state.steps + falls,
    )


def _scores(state: State, speed: Array) -> Array:
    """The score of each client, f32[C]; 0 of who was never seen."""
    seen = state.last > 0
    lowest = jnp.where(seen, state.utility, jnp.inf).min()
    highest = jnp.where(seen, state.utility, -jnp.inf).max()
    # All alike, or nobody seen: the range is 0, or no number.
    spread = jnp.where(highest > lowest, highest - lowest, 1.0)
    reward = (state.utility - lowest) / spread
    coming = (state.round + 1).astype(jnp.float32)
    bonus = jnp.sqrt(0.1 * jnp.log(coming) / jnp.maximum(state.last, 1))
    return jnp.where(seen, (reward + bonus) * speed, 0.0)


def _chosen(
    state: State,
    key: Key,
    scores: Array,
    log_speed: Array,
    cohort: int,
    explored: Array,
) -> Array:
    """`explored` clients never seen, where there are, and others by score, i32[M]."""
    num_clients = len(scores)
    seen = state.last > 0
    exploited = jnp.minimum(cohort - explored, seen.sum())
    # The lowest score with a place: of nobody, all may be drawn.
    place = jnp.maximum(exploited - 1, 0)
    lowest = jax.lax.top_k(scores, cohort)[0][place]
    admitted = seen & (scores >= CUT * lowest)
    noise = jax.random.gumbel(derive(key, "exploited"), scores.shape)
    # A score of 0 is as small as may be, but it is no reason for a tie.
    by_score = jnp.log(jnp.maximum(scores, 1e-30)) + noise
    # Who is not admitted comes behind all who are, and who was never seen after those.
    seen_rank = _ranks(by_score - 1e3 * ~admitted - 1e6 * ~seen)
    noise = jax.random.gumbel(derive(key, "explored"), scores.shape)
    unseen_rank = _ranks(log_speed + noise - 1e6 * seen)
    first = seen & (seen_rank < exploited)
    group = jnp.where(first, 2, jnp.where(seen, 0, 1))
    rank = jnp.where(seen, seen_rank, unseen_rank)
    _, ids = jax.lax.top_k(group * num_clients - rank, cohort)
    return ids.astype(jnp.int32)


def _ranks(values: Array) -> Array:
    """The place of each value, from the largest, i32[C]."""
    order = jnp.argsort(-values, stable=True)
    places = jnp.arange(len(values), dtype=jnp.int32)
    return jnp.zeros(len(values), jnp.int32).at[order].set(places)
