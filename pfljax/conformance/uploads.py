"""The laws of uploads on their way: channels, and what an upload is a change of."""

from functools import partial

import chex
import jax
import jax.numpy as jnp

from pfljax import engine
from pfljax.conformance import toy
from pfljax.conformance.play import Played
from pfljax.conformance.replay import replayed
from pfljax.conformance.script import ASKED, CLIENTS, ROUNDS, as_written
from pfljax.core import origins
from pfljax.core.channel import CHANNELS, chain, krum, median, trimmed_mean
from pfljax.core.communication import exchanges_of
from pfljax.engine.setting import exchanges

ONE_FOR_ALL = (median, trimmed_mean, krum)


def channels_fit(played: Played) -> None:
    """Channels may stand before `aggregate`, and what they remember is kept."""
    uploads = [float(state.channel) for state in played.states]
    each_round = ASKED * len(exchanges(played.setting))
    chex.assert_equal(uploads, [each_round * count for count in range(ROUNDS + 1)])
    # All that pfljax has, by shapes: they compute with every leaf of an upload.
    factories = list(CHANNELS.values())
    algorithm = played.setting.algorithm
    sent = exchanges_of(algorithm, played.task, CLIENTS, (3,))
    mixed = any(origins.absent(exchange.origin, exchange.upload) for exchange in sent)
    if mixed or algorithm.told_apart:
        # Uploads that say for whom they are would be mixed: it is refused.
        factories = [each for each in factories if each not in ONE_FOR_ALL]
    every = chain([channel() for channel in factories])
    setting = played.setting._replace(channel=every)
    state = played.states[0]._replace(channel=every.init())
    jax.eval_shape(partial(engine.one_round, setting), state, played.train)


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
