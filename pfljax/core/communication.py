"""What a round sends: bytes of messages and uploads."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.types import Algorithm, ClientData, Examples, Key, Task, Turn


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


def traffic_of(
    algorithm: Algorithm,
    task: Task,
    num_clients: int,
    input_shape: tuple[int, ...],
) -> Traffic:
    """Bytes of message and upload, from their shapes alone: nothing is run."""

    def exchange(key: Key, data: ClientData) -> tuple[Any, Any]:
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
        message = algorithm.message(turn, server, client)
        _, upload, _ = algorithm.train(turn, message, client, data)
        return message, upload

    data = shapes_of_client(input_shape)
    message, upload = jax.eval_shape(exchange, jax.random.key(0), data)
    return Traffic(down=tree.nbytes(message), up=tree.nbytes(upload))
