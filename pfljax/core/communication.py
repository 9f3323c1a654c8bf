"""The messages and uploads of a round as shapes, traced without running anything."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core.types import (
    Algorithm,
    Batch,
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


class Exchange(NamedTuple):
    """The message and the upload of one client, and its origin, as shapes."""

    message: Message
    origin: Origin
    upload: Upload


def shapes_of_model(task: Task) -> Params:
    """The parameters of a model, as shapes."""
    return jax.eval_shape(task.init, shape_of_key())


def shapes_of_server(algorithm: Algorithm, task: Task, num_clients: int) -> Any:
    """The first state of the server, as shapes."""

    def init(key: Key) -> Any:
        return algorithm.init(task.init(key), num_clients, key)

    return jax.eval_shape(init, shape_of_key())


def shapes_of_client(task: Task, input_shape: tuple[int, ...]) -> Any:
    """The data of a client with one example, as shapes, for `jax.eval_shape`."""
    batch = shapes_of_batch(task, 1, input_shape)
    number: Any = jax.ShapeDtypeStruct((), jnp.int32)
    return ClientData(Examples(batch.x, batch.y), offset=number, size=number)


def shapes_of_batch(task: Task, batch_size: int, input_shape: tuple[int, ...]) -> Any:
    """One minibatch, as shapes."""
    shape: Any = jax.ShapeDtypeStruct
    mask = shape((batch_size,), jnp.float32)
    x = shape((batch_size, *input_shape), jnp.float32)
    batch = Batch(x, shape((batch_size,), jnp.int32), mask)
    if task.kind == "classes":
        return batch
    outputs = jax.eval_shape(task.predict, shapes_of_model(task), batch)
    if task.kind == "tokens":
        return batch._replace(y=shape(outputs.shape[:-1], jnp.int32))
    return batch._replace(y=outputs)


def in_a_round(algorithm: Algorithm) -> list[Algorithm]:
    """The method and what it does `then`: the exchanges of a round in their order."""
    following = algorithm.then
    return [algorithm] if following is None else [algorithm, *in_a_round(following)]


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


def trace_exchanges(
    algorithm: Algorithm,
    task: Task,
    num_clients: int,
    input_shape: tuple[int, ...],
) -> list[Exchange]:
    """The exchanges of one client in a round, in their order, as shapes."""

    def exchanges(key: Key, data: ClientData) -> list[Exchange]:
        server, client, turn = first_turn(algorithm, task, num_clients, key, data)
        sent = []
        for one in in_a_round(algorithm):
            message = one.message(turn, server, client)
            _, upload, _ = one.train(turn, message, client, data)
            origin = one.origin(message, client, upload)
            sent.append(Exchange(message, origin, upload))
        return sent

    return jax.eval_shape(
        exchanges, shape_of_key(), shapes_of_client(task, input_shape)
    )


def shape_of_key() -> Any:
    """A key, as a shape."""
    return jax.eval_shape(jax.random.key, 0)
