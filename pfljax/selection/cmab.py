"""Cohorts whose classes are balanced, by a bandit.

Yang, Wang, Zhu, Wang, Qian, EUSIPCO 2021, https://arxiv.org/abs/2011.11266. Constants,
and how exploration enters the greedy choice, are reconstructed.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.aggregation import record
from pfljax.core.factories import component
from pfljax.core.losses import data_loss
from pfljax.core.minibatches import take_batch
from pfljax.core.public_examples import require_public
from pfljax.core.ranges import AtLeastOne, NotNegative, Positive, Share
from pfljax.core.types import Array, Cohort, Key, Params, Task
from pfljax.selection.base import Selection
from pfljax.selection.draws import require_cohort

STEEPEST = 50.0  # the largest exponent: beyond it one class has all the weight anyway
NEAREST = 1e-6  # the smallest divergence: its inverse is the reward
UNSEEN = 1e9  # the score of a client that never took part


class State(NamedTuple):
    """The knowledge of the server of each client."""

    round: Array  # i32[], rounds finished
    pulls: Array  # f32[C], T: the rounds in which a client reported
    reward: Array  # f32[C], sum of its rewards, each forgotten a little by the next
    weight: Array  # f32[C], the same sum of ones
    composition: Array  # f32[C, K], R: the estimated share of each class in its data


@component
def cmab(
    cohort: AtLeastOne,
    num_clients: AtLeastOne,
    task: Task,
    num_public: int,
    *,
    alpha: NotNegative = 0.2,
    beta: Positive = 1.0,
    memory: Share = 0.99,
) -> Selection:
    """Selects the client with the best index, then others that balance the classes.

    The share of class c in the data of a client is estimated from its model, as
    R_c ~ exp(beta / ||g_c||^2), where g_c is the gradient of the last layer on the
    server's examples of that class: it is small for a class that the client knows well.
    The client's reward is 1 / KL(R || uniform), whose running mean forgets old rewards
    by `memory`. The first member has the largest mean + alpha sqrt(3 ln t / 2T) after t
    rounds, in T of which it took part. Each further one has the least
    KL(mean R of the cohort with it || uniform) less the same bonus. Clients that never
    took part go first. If all clients are alike, they take part equally often.

    It needs examples of the server and the models of clients, and O(M C K) work.

    Args:
      alpha: weight of exploration.
      beta: a larger one estimates more unequal shares.
      memory: share of old rewards that is kept.
    """
    require_public("cmab", num_public)
    require_cohort(cohort, num_clients)

    def choose(state: State, key: Key) -> Array:
        return _choose(state, key, cohort, alpha)

    def observe(state: State, models: Params, model: Params, members: Cohort) -> State:
        batch = take_batch(members.public, jnp.int32(0), num_public)
        # One after another: all gradients at once would be as large as all models.
        estimates = jax.lax.map(lambda w: composition(task, w, batch, beta), models)
        return _learn(state, members, estimates, memory)

    return Selection(
        cohort=cohort,
        choose=choose,
        init=lambda: _init(num_clients, task.num_classes),
        observe=observe,
    )


def _init(num_clients: int, classes: int) -> State:
    """Makes the state before the first round."""
    return State(
        round=jnp.int32(0),
        pulls=jnp.zeros(num_clients),
        reward=jnp.zeros(num_clients),
        weight=jnp.zeros(num_clients),
        composition=jnp.full((num_clients, classes), 1 / classes, jnp.float32),
    )


def composition(task: Task, params: Params, batch: Any, beta: float) -> Array:
    """Estimates R, the shares of the classes in the data behind a model, f32[K].

    A class without an example in the batch has none.
    """
    features = task.features(params, batch, None)

    def square_norm(label: Array) -> Array:
        in_class = batch._replace(mask=(batch.y == label).astype(jnp.float32))

        def loss(params: Params) -> Array:
            return data_loss(task, task.head(params, features), in_class)

        return tree.square_norm(jax.grad(loss)(params))

    labels = jnp.arange(task.num_classes)
    squares = jax.lax.map(square_norm, labels)
    exponent = jnp.minimum(beta / (squares + 1e-12), STEEPEST)
    is_present = (batch.y[:, None] == labels).any(0)
    # A model that has diverged counts as that of a client of all classes.
    exponent = jnp.where(jnp.isfinite(squares), exponent, 0.0)
    return jax.nn.softmax(exponent, where=is_present)


def divergence(shares: Array) -> Array:
    """Returns KL(shares || uniform) over the last axis, at least `NEAREST`."""
    count = shares.shape[-1]
    terms = jax.scipy.special.xlogy(shares, shares * count)
    return jnp.maximum(terms.sum(-1), NEAREST)


def _learn(state: State, cohort: Cohort, estimates: Array, memory: float) -> State:
    """Updates the state with the estimated compositions [M, K] of a cohort."""
    reward = memory * state.reward[cohort.ids] + 1 / divergence(estimates)
    weight = memory * state.weight[cohort.ids] + 1
    return State(
        round=state.round + 1,
        pulls=record(state.pulls, state.pulls[cohort.ids] + 1, cohort),
        reward=record(state.reward, reward, cohort),
        weight=record(state.weight, weight, cohort),
        composition=record(state.composition, estimates, cohort),
    )


def _choose(state: State, key: Key, cohort: int, alpha: float) -> Array:
    """Chooses the members greedily, i32[M]."""
    num_clients = len(state.pulls)
    pulls = jnp.maximum(state.pulls, 1)
    log_rounds = jnp.log(jnp.maximum(state.round, 1).astype(jnp.float32))
    bonus = alpha * jnp.sqrt(3 * log_rounds / (2 * pulls))
    # Clients never seen are tied: any of them.
    any_unseen = UNSEEN * (1 + jax.random.uniform(key, (num_clients,)))
    bonus = jnp.where(state.pulls > 0, bonus, any_unseen)
    mean_reward = state.reward / jnp.maximum(state.weight, 1e-12)

    def add(place: Array, carry: Any) -> Any:
        ids, free, total = carry
        together = (total + state.composition) / (place + 1)
        # Not its inverse, which has no bound: no bonus would ever count beside it.
        balance = -divergence(together)
        score = jnp.where(place == 0, mean_reward, balance) + bonus
        member = jnp.argmax(jnp.where(free, score, -jnp.inf)).astype(jnp.int32)
        total = total + state.composition[member]
        return ids.at[place].set(member), free.at[member].set(False), total

    start = (
        jnp.zeros(cohort, jnp.int32),
        jnp.ones(num_clients, bool),
        jnp.zeros(state.composition.shape[1]),
    )
    ids, _, _ = jax.lax.fori_loop(0, cohort, add, start)
    return ids
