"""A place in clients' states for what a channel remembers of each of them.

The method is wrapped, and knows nothing of it: its functions see its own client state.
So stores, devices, groups of architectures, checkpoints and newcomers treat the memory
as any client state. It is written where uploads leave (`travel.send`).
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from pfljax.channel.base import Channel, Start
from pfljax.core import tree
from pfljax.core.communication import Exchange
from pfljax.core.types import Algorithm, Client


class Remembering(NamedTuple):
    """A client's state beside what the channel remembers of it."""

    client: Client  # the method's own
    memory: tuple[Any, ...]  # of each exchange of a round


def fit(
    channel: Channel, algorithm: Algorithm, exchanges: Sequence[Exchange]
) -> tuple[Channel, Algorithm]:
    """(the channel, the method), fit to what the method sends.

    `exchanges` are `communication.trace_exchanges(algorithm, ...)`. The channel may
    keep a state, and the method's clients a memory, of these shapes.
    """
    fit = shaped_by(channel, exchanges)
    return fit, remembering(channel, algorithm, exchanges)


def shaped_by(channel: Channel, exchanges: Sequence[Exchange]) -> Channel:
    """The channel, whose state may be made of the shapes of the first exchange."""
    first = exchanges[0]

    def init(start: Start) -> Any:
        known = start._replace(origin=first.origin, upload=first.upload)
        return channel.init(known)

    return channel._replace(init=init)


def remembering(
    channel: Channel, algorithm: Algorithm, exchanges: Sequence[Exchange]
) -> Algorithm:
    """The method, whose clients have room for the channel's memory; itself without."""
    if channel.memory is None:
        return algorithm
    shapes = [
        jax.eval_shape(channel.memory, each.origin, each.upload) for each in exchanges
    ]
    return _wrap(algorithm, tuple(shapes))


def _wrap(algorithm: Algorithm, memory: tuple[Any, ...]) -> Algorithm:
    """The method over `Remembering`; `memory` is that of a client that sent nothing."""

    @functools.wraps(algorithm.init_client)
    def init_client(params, client_id, key):
        client = algorithm.init_client(params, client_id, key)
        return Remembering(client, tree.zeros(memory))

    @functools.wraps(algorithm.train)
    def train(turn, message, client, data):
        state, upload, metrics = algorithm.train(turn, message, client.client, data)
        return client._replace(client=state), upload, metrics

    functions = {
        name: _unwrap(getattr(algorithm, name), index)
        for name, index in CLIENT_AT.items()
    }
    then = algorithm.then
    return algorithm._replace(
        init_client=init_client,
        train=train,
        then=then and _wrap(then, memory),
        **functions,
    )


# At which place a function of a method takes the client.
CLIENT_AT = {"message": 2, "personal": 2, "endpoints": 1, "quantities": 1, "origin": 1}


def _unwrap(function: Any, place: int) -> Any:
    """The function, given the method's own client state; None where there is none."""
    if function is None:
        return None

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        state = args[place].client
        return function(*args[:place], state, *args[place + 1 :])

    return call
