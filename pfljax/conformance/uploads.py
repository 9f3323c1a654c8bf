"""The laws of uploads on their way: channels, and what an upload is a change of."""

from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp

from pfljax import engine
from pfljax.conformance import toy
from pfljax.conformance.play import Played
from pfljax.conformance.replay import replayed
from pfljax.conformance.script import ASKED, CLIENTS, ROUNDS, as_written
from pfljax.core import origins
from pfljax.core.channel import CHANNELS, chain, fitted
from pfljax.core.communication import Exchange, exchanges_of
from pfljax.engine.setting import exchanges


def channels_fit(played: Played) -> None:
    """Channels may stand before `aggregate`, and what they remember is kept."""
    uploads = [float(state.channel) for state in played.states]
    each_round = ASKED * len(exchanges(played.setting))
    chex.assert_equal(uploads, [each_round * count for count in range(ROUNDS + 1)])
    # All that pfljax has, by shapes: they compute with every leaf of an upload.
    channels = [factory() for factory in CHANNELS.values()]
    algorithm = played.setting.algorithm
    sent = exchanges_of(algorithm, played.task, CLIENTS, (3,))
    mixed = any(origins.absent(exchange.origin, exchange.upload) for exchange in sent)
    if mixed or algorithm.told_apart:
        # Uploads that say for whom they are would be mixed: it is refused.
        channels = [channel for channel in channels if not channel.one_for_all]
    if played.task.peers or len({_shapes(exchange) for exchange in sent}) > 1:
        # A value that is kept for the next round has one shape.
        channels = [channel for channel in channels if not channel.shaped]
    every, remembering = fitted(chain(channels), algorithm, sent)
    setting = played.setting._replace(channel=every, algorithm=remembering)
    first = partial(engine.init, setting, played.task, CLIENTS)
    state = jax.eval_shape(first, played.states[0].key)
    jax.eval_shape(partial(engine.one_round, setting), state, played.train)


def _shapes(exchange: Exchange) -> tuple[Any, ...]:
    """The shapes of an upload's leaves."""
    return tuple(leaf.shape for leaf in jax.tree.leaves(exchange.upload))


def origins_are_uploads_of_no_step(played: Played) -> None:
    """Who is new and takes no step uploads what `Algorithm.origin` says."""
    script = as_written()
    no_step = script._replace(steps=jnp.zeros_like(script.steps))
    held_back = script._replace(held_back=jnp.bool_(True))
    # The server of the fifth state: some methods train nothing in their first rounds.
    # Its clients are new, for others may start from what they keep, such as FedALA's.
    begun = played.states[0]
    first = played.states[5]._replace(
        clients=begun.clients, participations=begun.participations
    )
    at_rest = replayed(played, first, 1, no_step)
    of_origins = replayed(played, first, 1, held_back)
    toy.assert_close(at_rest.server, of_origins.server)
