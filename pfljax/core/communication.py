"""What a round sends: bytes of messages and uploads."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import channel, tree
from pfljax.core.channel import Channel
from pfljax.core.types import (
    Algorithm,
    Client,
    ClientData,
    Examples,
    Key,
    Message,
    Origin,
    Params,
    Task,
    Turn,
    Upload,
)


class Traffic(NamedTuple):
    """Bytes of one client's exchange in one round."""

    down: int
    up: int


def shapes_of_model(task: Task) -> Params:
    """The parameters of a model, as shapes."""
    key: Any = jax.eval_shape(jax.random.key, 0)
    return jax.eval_shape(task.init, key)


def shapes_of_client(input_shape: tuple[int, ...]) -> Any:
    """The data of a client with one row, as shapes, for `jax.eval_shape`."""
    shape: Any = jax.ShapeDtypeStruct
    number = shape((), jnp.int32)
    pool = Examples(
        x=shape((1, *input_shape), jnp.float32),
        y=shape((1,), jnp.int32),
    )
    return ClientData(examples=pool, offset=number, size=number)


def in_a_round(algorithm: Algorithm) -> list[Algorithm]:
    """The method, and what it does `then`: the exchanges of a round in their order."""
    following = algorithm.then
    return [algorithm] if following is None else [algorithm, *in_a_round(following)]


class Exchange(NamedTuple):
    """What one client and the server send each other in a round, as shapes."""

    message: Message
    origin: Origin
    upload: Upload


def traffic_of(
    algorithm: Algorithm,
    task: Task,
    num_clients: int,
    input_shape: tuple[int, ...],
    through: Channel | None = None,
) -> Traffic:
    """Bytes of messages and uploads, those of `exchanges_of`, behind the channel."""
    sent = exchanges_of(algorithm, task, num_clients, input_shape, through)
    return Traffic(
        down=sum(tree.nbytes(exchange.message) for exchange in sent),
        up=sum(
            channel.bytes_of(through, exchange.origin, exchange.upload)
            for exchange in sent
        ),
    )


def first_turn(
    algorithm: Algorithm,
    task: Task,
    num_clients: int,
    key: Key,
    data: ClientData,
) -> tuple[Any, Any, Turn]:
    """(server, client, turn) of client 0 in the first round, for one step; to trace."""
    params = task.init(key)
    server = algorithm.init(params, num_clients, key)
    client = algorithm.init_client(params, jnp.int32(0), key)
    turn = Turn(
        key=key,
        round=jnp.int32(0),
        steps=jnp.int32(1),
        id=jnp.int32(0),
        num_clients=num_clients,
        public=data,
    )
    return server, client, turn


def exchange_of(
    algorithm: Algorithm,
    task: Task,
    num_clients: int,
    input_shape: tuple[int, ...],
    through: Channel | None = None,
) -> Exchange:
    """What is sent first in a round, or all that is; see `exchanges_of`."""
    return exchanges_of(algorithm, task, num_clients, input_shape, through)[0]


def _send(
    through: Channel,
    algorithm: Algorithm,
    sent: tuple[Turn, Message, Client, Upload],
) -> None:
    """Raises what the channel says of this upload; behind it, its shapes are equal."""
    turn, message, client, upload = sent
    state = channel.first_state(through, turn.key, turn.num_clients)
    sender = channel.Sender(key=turn.key, id=turn.id, asked=1)
    channel.sent(through, algorithm, state, sender, message, client, client, upload)


def exchanges_of(
    algorithm: Algorithm,
    task: Task,
    num_clients: int,
    input_shape: tuple[int, ...],
    through: Channel | None = None,
) -> list[Exchange]:
    """What is sent in a round, first and `then`, traced: nothing is run.

    Raises:
      ValueError: uploads of this method cannot go `through` this channel.
    """

    def exchanges(key: Key, data: ClientData) -> list[Exchange]:
        server, client, turn = first_turn(algorithm, task, num_clients, key, data)
        sent = []
        passing = through
        for one in in_a_round(algorithm):
            message = one.message(turn, server, client)
            _, upload, _ = one.train(turn, message, client, data)
            if passing is not None:
                _send(passing, one, (turn, message, client, upload))
                passing = channel.again(passing)
            origin = one.origin(message, client, upload)
            sent.append(Exchange(message=message, origin=origin, upload=upload))
        return sent

    key: Any = jax.eval_shape(jax.random.key, 0)
    data = shapes_of_client(input_shape)
    return jax.eval_shape(exchanges, key, data)
