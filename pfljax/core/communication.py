"""What a round sends: bytes of messages and uploads."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import channel, tree
from pfljax.core.channel import Channel
from pfljax.core.types import (
    Algorithm,
    ClientData,
    Examples,
    Key,
    Message,
    Origin,
    Task,
    Turn,
    Upload,
)


class Traffic(NamedTuple):
    """Bytes of one client's exchange in one round."""

    down: int
    up: int


def shapes_of_client(input_shape: tuple[int, ...]) -> Any:
    """The data of a client with one row, as shapes, for `jax.eval_shape`."""
    shape: Any = jax.ShapeDtypeStruct
    number = shape((), jnp.int32)
    pool = Examples(
        x=shape((1, *input_shape), jnp.float32),
        y=shape((1,), jnp.int32),
    )
    return ClientData(examples=pool, offset=number, size=number)


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
    """Bytes of message and upload, those of `exchange_of`."""
    exchange = exchange_of(algorithm, task, num_clients, input_shape, through)
    return Traffic(
        down=tree.nbytes(exchange.message),
        up=tree.nbytes(exchange.upload),
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
    """What is sent in a round, traced: nothing is run.

    Raises:
      ValueError: uploads of this method cannot go `through` this channel.
    """

    def exchange(key: Key, data: ClientData) -> Exchange:
        server, client, turn = first_turn(algorithm, task, num_clients, key, data)
        message = algorithm.message(turn, server, client)
        _, upload, _ = algorithm.train(turn, message, client, data)
        if through is not None:
            upload = channel.sent(
                through, algorithm, through.init(), key, message, client, upload
            )
        origin = algorithm.origin(message, client, upload)
        return Exchange(message=message, origin=origin, upload=upload)

    key: Any = jax.eval_shape(jax.random.key, 0)
    data = shapes_of_client(input_shape)
    return jax.eval_shape(exchange, key, data)
