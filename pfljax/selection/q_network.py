"""A double DQN: the values of actions, learned from a memory of transitions.

van Hasselt, Guez, Silver, AAAI 2016, https://arxiv.org/abs/1509.06461.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.core import perceptron, tree
from pfljax.core.types import Array, Key

DISCOUNT = 0.99
ROOM = 128  # transitions in memory
BATCH = 32  # of them in a step
STEPS = 4  # after each transition
COPY_EVERY = 10  # transitions until the target network is the online one again
OPTIMIZER = optax.adam(1e-3)


class Transition(NamedTuple):
    """A state, an action, and the next state."""

    before: Array  # f32[S]
    action: Array  # i32[]
    reward: Array  # f32[]
    after: Array  # f32[S]


class Agent(NamedTuple):
    """The networks, and the memory that they learn from."""

    online: tuple[perceptron.Layer, ...]
    target: tuple[perceptron.Layer, ...]
    moments: Any
    memory: Transition  # stacked over ROOM, the oldest is written over
    transitions: Array  # i32[], so far


def init(key: Key, widths: tuple[int, ...]) -> Agent:
    """Makes networks of these widths, and an empty memory."""
    online = perceptron.init(key, widths)
    return Agent(
        online=online,
        # Another buffer: the state of a run is donated, no buffer twice.
        target=jax.tree.map(jnp.copy, online),
        moments=OPTIMIZER.init(online),
        memory=Transition(
            before=jnp.zeros((ROOM, widths[0])),
            action=jnp.zeros(ROOM, jnp.int32),
            reward=jnp.zeros(ROOM),
            after=jnp.zeros((ROOM, widths[0])),
        ),
        transitions=jnp.int32(0),
    )


def values(network: tuple[perceptron.Layer, ...], state: Array) -> Array:
    """Returns the value of each action in a state f32[S], f32[A]."""
    return perceptron.apply(network, state[None])[0]


def learn(agent: Agent, key: Key, transition: Transition, known: Array) -> Agent:
    """Learns from this transition, if it is `known`."""
    slot = agent.transitions % ROOM
    count = agent.transitions + 1
    memory = tree.put(agent.memory, slot, transition)

    def step(index: Array, carry: Any) -> Any:
        online, moments = carry
        step_key = jax.random.fold_in(key, index)
        filled = jnp.minimum(count, ROOM)
        drawn = jax.random.randint(step_key, (BATCH,), 0, filled)
        batch = tree.take(memory, drawn)
        grads = jax.grad(error)(online, agent.target, batch)
        updates, moments = OPTIMIZER.update(grads, moments, online)
        return optax.apply_updates(online, updates), moments

    start = agent.online, agent.moments
    online, moments = jax.lax.fori_loop(0, STEPS, step, start)
    target = tree.where(count % COPY_EVERY == 0, online, agent.target)
    after = Agent(online, target, moments, memory, count)
    return tree.where(known, after, agent)


def error(online: Any, target: Any, batch: Transition) -> Array:
    """Averages (Q(s, a) - (r + gamma Q_target(s', argmax_b Q(s', b))))^2."""
    ahead = jnp.argmax(perceptron.apply(online, batch.after), axis=1)
    worth = values_at(target, batch.after, ahead)
    aim = jax.lax.stop_gradient(batch.reward + DISCOUNT * worth)
    now = values_at(online, batch.before, batch.action)
    return jnp.mean(jnp.square(now - aim))


def values_at(network: Any, states: Array, actions: Array) -> Array:
    """Returns the value of each state's action, f32[B]."""
    every = perceptron.apply(network, states)
    return jnp.take_along_axis(every, actions[:, None], axis=1)[:, 0]
