"""Cohorts chosen by a network that learns which models raise the accuracy.

Wang, Kaplan, Niu, Li, FAVOR, INFOCOM 2020,
https://doi.org/10.1109/INFOCOM41043.2020.9155494.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.minibatches import take_batch
from pfljax.core.public_examples import require_public
from pfljax.core.ranges import AtLeastOne, Share
from pfljax.core.types import Array, Cohort, Key, Params, Task
from pfljax.selection import q_network
from pfljax.selection.base import Selection
from pfljax.selection.draws import require_cohort
from pfljax.selection.q_network import Agent, Transition
from pfljax.selection.uniform import uniform

STEEPNESS = 64.0  # Xi of the reward


class State(NamedTuple):
    """The knowledge of the server."""

    round: Array  # i32[], rounds finished
    mean: Array  # f32[d], of the first cohort's models
    basis: Array  # f32[P, d], their principal components
    # f32[C + 1, P], the last known model of each client and of the server, reduced.
    models: Array
    agent: Agent


@component
def favor(
    cohort: AtLeastOne,
    num_clients: AtLeastOne,
    task: Task,
    num_public: int,
    *,
    target: Share = 0.99,
    epsilon: Share = 0.1,
    components: AtLeastOne = 16,
    hidden: AtLeastOne = 64,
) -> Selection:
    """Selects the clients with the largest values of a double DQN.

    The input of the network is the last known model of each client and of the server,
    each reduced to `components` principal components. The reward of a round is
    64^(accuracy - target) - 1, with the accuracy of the new model on the server's
    examples. A cohort is uniform with the probability `epsilon`; with epsilon = 1 it is
    that of `uniform`. It takes O(C components hidden) work, and memory for 128
    transitions of 2 (C + 1) components each.

    Differs from the paper, where all clients train and upload in a first round: here
    clients take turns until each has taken part once. The components are those of the
    models of the first cohort, of which at most M - 1 are not 0, and a client without a
    model has the mean of these models. The network remembers a round by one action, a
    random member of the cohort.

    Args:
      target: accuracy at which a reward is 0.
      epsilon: probability of a uniform cohort.
      components: principal components of a model.
      hidden: units of the value network.
    """
    require_public("favor", num_public)
    require_cohort(cohort, num_clients)
    at_random = uniform(cohort, num_clients)
    widths = ((num_clients + 1) * components, hidden, hidden, num_clients)
    in_turn = -(-num_clients // cohort)  # rounds until each client took part

    def choose(state: State, key: Key) -> Array:
        values = q_network.values(state.agent.online, state.models.ravel())
        _, best = jax.lax.top_k(values, cohort)
        turn = (state.round * cohort + jnp.arange(cohort)) % num_clients
        ids = jnp.where(state.round < in_turn, turn, best.astype(jnp.int32))
        explores = jax.random.bernoulli(derive(key, "explores"), epsilon)
        # Not before each client took part, unless all is at random.
        explores &= (state.round >= in_turn) | (epsilon == 1)
        drawn = at_random.choose((), derive(key, "cohort"))
        return jnp.where(explores, drawn, ids)

    def observe(state: State, models: Params, model: Params, members: Cohort) -> State:
        batch = take_batch(members.public, jnp.int32(0), num_public)
        accuracy = jnp.mean(task.predict(model, batch).argmax(1) == batch.y)
        reward = STEEPNESS ** (accuracy - target) - 1
        known = state.round >= in_turn
        return _learn(state, models, model, members, reward, known)

    return Selection(
        cohort=cohort,
        choose=choose,
        init=lambda: _init(task, num_clients, components, widths),
        observe=observe,
    )


def _init(
    task: Task, num_clients: int, components: int, widths: tuple[int, ...]
) -> State:
    """Makes the state before the first round."""
    size = sum(leaf.size for leaf in jax.tree.leaves(shapes_of_model(task)))
    return State(
        round=jnp.int32(0),
        mean=jnp.zeros(size),
        basis=jnp.zeros((components, size)),
        models=jnp.zeros((num_clients + 1, components)),
        agent=q_network.init(jax.random.key(0), widths),
    )


def _learn(
    state: State,
    models: Params,
    model: Params,
    cohort: Cohort,
    reward: Array,
    known: Array,
) -> State:
    """Updates the reduced models and the agent after a round."""
    sent = jax.vmap(_flatten)(models)
    fitted = _components(sent, cohort.mask, len(state.basis))
    mean, basis = tree.where(state.round == 0, fitted, (state.mean, state.basis))
    server = len(state.models) - 1
    # Past the end: C, the id of an empty place, is the server's row here.
    ids = jnp.where(cohort.mask > 0, cohort.ids, server + 1)
    after = state.models.at[ids].set((sent - mean) @ basis.T, mode="drop")
    after = after.at[server].set((_flatten(model) - mean) @ basis.T)
    key = derive(cohort.key, "favor")
    # Drawn by client, not by place: the same on one device and on several.
    lot = jax.random.uniform(derive(key, "action"), (server,))[cohort.ids]
    transition = Transition(
        before=state.models.ravel(),
        action=cohort.ids[jnp.argmax(jnp.where(cohort.mask > 0, lot, -1.0))],
        reward=reward,
        after=after.ravel(),
    )
    known = known & (cohort.mask.sum() > 0)
    agent = q_network.learn(state.agent, derive(key, "learn"), transition, known)
    return State(
        round=state.round + 1,
        mean=mean,
        basis=basis,
        models=after,
        agent=agent,
    )


def _flatten(params: Params) -> Array:
    """Returns the parameters as one vector, f32[d]; 0 for what is no number."""
    leaves = [leaf.ravel() for leaf in jax.tree.leaves(params)]
    return jnp.nan_to_num(jnp.concatenate(leaves).astype(jnp.float32))


def _components(sent: Array, mask: Array, count: int) -> Any:
    """Returns (mean f32[d], basis f32[P, d]) of the models that came, [M, d].

    In units of the first component's standard deviation. Zeros past M components.
    """
    came = mask[:, None]
    reported = jnp.maximum(mask.sum(), 1)
    mean = (came * sent).sum(0) / reported
    centred = came * (sent - mean)
    # For few models of many parameters: eigenvectors of their products, [M, M].
    products = centred @ centred.T
    square, vectors = jnp.linalg.eigh(products)
    most = min(count, len(mask))
    order = jnp.argsort(-square)[:most]
    length = jnp.sqrt(jnp.maximum(square[order], 0))
    # Centred models span one dimension less: the last lengths are rounding errors.
    is_real = length > 1e-3 * length[0]
    divisor = jnp.where(is_real, length, 1)
    directions = centred.T @ vectors[:, order]
    basis = directions.T / divisor[:, None]
    spread = length[0] / jnp.sqrt(reported)
    scaled = basis / jnp.maximum(spread, 1e-12)
    basis = jnp.where(is_real[:, None], scaled, 0)
    padded = jnp.zeros((count, sent.shape[1]))
    return mean, padded.at[:most].set(basis)
