"""Counts the bytes that clients send and receive in a round."""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.channel import origins
from pfljax.channel.base import Channel, Sender, Start
from pfljax.channel.chains import in_next_exchange
from pfljax.channel.outgoing import send
from pfljax.core import tree
from pfljax.core.communication import Exchange, in_a_round, trace_exchanges
from pfljax.core.types import Algorithm, Key, Origin, Task, Upload


class Traffic(NamedTuple):
    """The bytes that one client receives and sends in one round."""

    down: int
    up: int


def count_traffic(
    algorithm: Algorithm,
    task: Task,
    num_clients: int,
    input_shape: tuple[int, ...],
    channel: Channel | None = None,
) -> Traffic:
    """Counts the bytes of messages, and of uploads after the channel.

    Raises:
      ValueError: the uploads of this method cannot pass through this channel.
    """
    exchanges = trace_exchanges(algorithm, task, num_clients, input_shape)
    if channel is not None:
        check(channel, algorithm, task, exchanges, num_clients)
    return Traffic(
        down=sum(tree.nbytes(exchange.message) for exchange in exchanges),
        up=sum(
            count_bytes(channel, exchange.origin, exchange.upload)
            for exchange in exchanges
        ),
    )


def check(
    channel: Channel,
    algorithm: Algorithm,
    task: Task,
    exchanges: Sequence[Exchange],
    num_clients: int,
) -> None:
    """Raises a ValueError if the uploads of a round cannot pass through the channel."""

    def trace(channel: Channel, stage: Algorithm, key: Key, exchange: Exchange) -> None:
        sender = Sender(key=key, id=jnp.int32(0), asked=1)
        state = channel.init(Start(key, num_clients))
        client = stage.init_client(task.init(key), sender.id, key)
        message, _, upload = exchange
        send(channel, stage, state, sender, message, client, client, upload)

    key = jax.eval_shape(jax.random.key, 0)
    for stage, exchange in zip(in_a_round(algorithm), exchanges, strict=True):
        jax.eval_shape(partial(trace, channel, stage), key, exchange)
        channel = in_next_exchange(channel)


def count_bytes(channel: Channel | None, origin: Origin, upload: Upload) -> int:
    """The bytes of an upload after the channel: its bits by shapes, rounded up."""
    if channel is None or channel.bits is None:
        report = 0 if channel is None else channel.report_bits
        return tree.nbytes(upload) + math.ceil(report / 8)
    _, values, others = origins.parts(origin, upload)
    bits = float(channel.report_bits)
    for leaf in jax.tree.leaves(values):
        bits += channel.bits(leaf)
    return tree.nbytes(others) + math.ceil(bits / 8)
