"""Adds the memory that a channel keeps of each client to the clients' states.

The method is wrapped, and its functions see the method's own client state. Stores,
devices, groups of architectures and checkpoints treat the memory like any other part of
a client's state. It is written when an upload leaves (`outgoing.send`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from pfljax.channel.base import Channel, Start
from pfljax.core import tree
from pfljax.core.communication import Exchange
from pfljax.core.server_model import wrap_client
from pfljax.core.types import Algorithm, Client


class ClientMemory(NamedTuple):
    """A client's state, and the channel's memory of it."""

    client: Client  # of the method
    memory: tuple[Any, ...]  # one for each exchange of a round


def fit(
    channel: Channel, algorithm: Algorithm, exchanges: Sequence[Exchange]
) -> tuple[Channel, Algorithm]:
    """Fits a channel and a method to each other; returns both.

    The state of the channel and the memory of the clients get the shapes of
    `exchanges`, which are `communication.trace_exchanges(algorithm, ...)`.
    """
    return set_shapes(channel, exchanges), add_memory(channel, algorithm, exchanges)


def set_shapes(channel: Channel, exchanges: Sequence[Exchange]) -> Channel:
    """The channel, whose `init` gets the shapes of the first exchange.

    Nothing is lost of a method that sends nothing.
    """
    first = exchanges[0]
    sends = any(jax.tree.leaves(each.upload) for each in exchanges)

    def init(start: Start) -> Any:
        known = start._replace(origin=first.origin, upload=first.upload)
        return channel.init(known)

    return channel._replace(init=init, arrives=channel.arrives if sends else None)


def add_memory(
    channel: Channel, algorithm: Algorithm, exchanges: Sequence[Exchange]
) -> Algorithm:
    """The method, whose clients also hold the channel's memory, if it has one."""
    if channel.memory is None:
        return algorithm
    shapes = [
        jax.eval_shape(channel.memory, each.origin, each.upload) for each in exchanges
    ]
    return _wrap(algorithm, tuple(shapes))


def _wrap(algorithm: Algorithm, memory: tuple[Any, ...]) -> Algorithm:
    """The method over `ClientMemory`; `memory` has the shapes of a client's memory."""

    def init_client(params, client_id, key):
        client = algorithm.init_client(params, client_id, key)
        return ClientMemory(client, tree.zeros(memory))

    def train(turn, message, client, data):
        state, upload, metrics = algorithm.train(turn, message, client.client, data)
        return client._replace(client=state), upload, metrics

    then = algorithm.then
    return wrap_client(algorithm, lambda client: client.client)._replace(
        init_client=init_client,
        train=train,
        then=then and _wrap(then, memory),
    )
