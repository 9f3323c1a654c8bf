"""The laws of uploads: channels, the origin of a change, means, draws, and bytes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp

from pfljax import engine
from pfljax.channel import CHANNELS, chain, count_traffic, fit, origins
from pfljax.conformance import toy
from pfljax.conformance.script import ASKED, CLIENTS, ROUNDS, draw_again, full_script
from pfljax.conformance.trial import Trial, replay, replay_draws
from pfljax.core.communication import Exchange, trace_exchanges
from pfljax.engine.setting import exchanges


def channels_fit(trial: Trial) -> None:
    """Channels may be placed before `aggregate`, and keep their state."""
    uploads = [float(state.channel) for state in trial.states]
    each_round = ASKED * len(exchanges(trial.setting))
    chex.assert_equal(uploads, [each_round * count for count in range(ROUNDS + 1)])
    # All channels of pfljax, traced by shapes: they use every leaf of an upload.
    channels = [factory()() for factory in CHANNELS.values()]
    algorithm = trial.setting.algorithm
    sent = trace_exchanges(algorithm, trial.task, CLIENTS, (3,))
    if _is_mixed(sent) or algorithm.uploads_by_client:
        # These would mix uploads of named clients, which is refused.
        channels = [channel for channel in channels if not channel.one_for_all]
    if trial.task.peers or len({_shapes(exchange) for exchange in sent}) > 1:
        # A value that a channel keeps for the next round has a fixed shape.
        channels = [channel for channel in channels if not channel.shaped]
    every, with_memory = fit(chain(channels), algorithm, sent)
    setting = trial.setting._replace(channel=every, algorithm=with_memory)
    first = partial(engine.init, setting, trial.task, CLIENTS)
    state = jax.eval_shape(first, trial.states[0].key)
    jax.eval_shape(partial(engine.one_round, setting), state, trial.train)


def means_are_enough(trial: Trial) -> None:
    """The server needs no more than the mean upload, or says so."""
    algorithm = trial.setting.algorithm
    sent = trace_exchanges(algorithm, trial.task, CLIENTS, (3,))
    if algorithm.uploads_by_client or _is_mixed(sent):
        return  # a robust value in place of every upload is refused
    script = draw_again(full_script(), again=False)
    averaged = script._replace(averaged=jnp.bool_(True))
    expected = replay_draws(trial, script)
    toy.assert_close(replay_draws(trial, averaged).server, expected.server)


def draws_are_relative(trial: Trial) -> None:
    """Clients that are all drawn twice count as if all were drawn once."""
    once = replay_draws(trial, draw_again(full_script(), False))
    twice = replay_draws(trial, draw_again(full_script(), True))
    toy.assert_close(twice.server, once.server)
    toy.assert_close(twice.clients, once.clients)


def _is_mixed(sent: Sequence[Exchange]) -> bool:
    """True if uploads have leaves that are no change."""
    return any(origins.absent(each.origin, each.upload) for each in sent)


def _shapes(exchange: Exchange) -> tuple[Any, ...]:
    """The shapes of an upload's leaves."""
    return tuple(leaf.shape for leaf in jax.tree.leaves(exchange.upload))


def origins_are_uploads_of_no_step(trial: Trial) -> None:
    """A new client that takes no step uploads the value of `Algorithm.origin`."""
    script = full_script()
    no_step = script._replace(steps=jnp.zeros_like(script.steps))
    held_back = script._replace(held_back=jnp.bool_(True))
    # The server of the fifth state, since some methods train nothing in their first
    # rounds. Its clients are new: others, such as FedALA's, may start from their state.
    begun = trial.states[0]
    first = trial.states[5]._replace(
        clients=begun.clients, participations=begun.participations
    )
    at_rest = replay(trial, first, 1, no_step)
    of_origins = replay(trial, first, 1, held_back)
    toy.assert_close(at_rest.server, of_origins.server)


def bytes_are_as_declared(trial: Trial) -> None:
    """Declared bytes are the leaves of message and upload."""
    assert trial.case.bytes is not None, "no bytes are declared"
    algorithm = trial.setting.algorithm
    traffic = count_traffic(algorithm, trial.task, CLIENTS, (3,))
    chex.assert_equal(tuple(traffic), tuple(trial.case.bytes))
