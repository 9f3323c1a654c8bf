"""Cohorts of the clients that are useful and fast, and of some never seen.

Lai et al., Oort, OSDI 2021, https://arxiv.org/abs/2010.06081, Algorithm 1; as in the
authors' code (FedScale) where the paper leaves units open.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.keys import derive
from pfljax.core.types import Array, Cohort, Key, Metrics
from pfljax.registry import AtLeastOne, NotNegative, Share, checked
from pfljax.selection.base import Selection
from pfljax.selection.draws import require_cohort, require_seconds
from pfljax.selection.reports import ids_of, losses_of

CUT = 0.95  # of the lowest score that would be exploited: who has more may be drawn


class State(NamedTuple):
    """What the server has learned of each client."""

    round: Array  # i32[], rounds finished
    utility: Array  # f32[C], rows times the last loss
    last: Array  # i32[C], when it reported last, 1 for the first round; 0 for never


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
) -> Selection:
    """A share of places goes to clients never seen, others to those of best score.

    The share is exploration * decay^round, but `least`. Clients never seen are drawn in
    proportion to 1 / seconds; of the others those with nearly the score of the lowest
    that has a place, in proportion to it. Where there are too few of the one, more of
    the other are drawn. With round r, and L the round of the client's last report:

        score = (utility, from 0 to 1 of all seen, + sqrt(.1 ln r / L))
                * (T / seconds)^penalty  of a client slower than T

    T is the quantile `preferred` of seconds; 1 as well as penalty = 0 ask for no speed.
    Seconds are those expected of a round: by a profile of the devices, or of one second
    a row without. O(C log C) work.

    Differs from the paper: utility is rows times the mean loss, for the mean of squares
    is not reported. There is no pacer: T stays.

    Args:
      exploration: share of places for clients never seen, at first.
      decay: of that share a round.
      least: of that share.
      penalty: exponent of slow clients' scores; 0 for none.
      preferred: quantile of seconds that counts as slow.
    """
    seconds = require_seconds("oort", seconds)
    num_clients = len(sizes)
    require_cohort(cohort, num_clients)
    rows = jnp.asarray(sizes, jnp.float32)
    late = np.quantile(seconds, preferred) / seconds
    speed = jnp.asarray(np.minimum(late, 1) ** penalty, jnp.float32)
    log_speed = jnp.asarray(-np.log(seconds), jnp.float32)

    def choose(state: State, key: Key) -> Array:
        share = jnp.maximum(exploration * decay**state.round, least)
        explored = jnp.floor(share * cohort).astype(jnp.int32)
        scores = _scores(state, speed)
        return _chosen(state, key, scores, log_speed, cohort, explored)

    def update(state: State, members: Cohort, metrics: Metrics) -> State:
        ids = ids_of(members)
        utility = rows[members.ids] * losses_of(metrics)
        finished = state.round + 1
        return State(
            round=finished,
            utility=state.utility.at[ids].set(utility, mode="drop"),
            last=state.last.at[ids].set(finished, mode="drop"),
        )

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
