"""FLOPs of one local step of a method, model and minibatch.

Nothing is trained or compiled: the step is traced and lowered.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.core.communication import first_turn, shapes_of_client, shapes_of_model
from pfljax.core.types import (
    Algorithm,
    Batch,
    ClientData,
    Key,
    Local,
    Params,
    Task,
    Turn,
)
from pfljax.engine import Setting
from pfljax.simulate.flops import has_loop, product_flops


class Step(NamedTuple):
    """What a client does a step of."""

    algorithm: Algorithm
    task: Task
    local: Local
    row: Any  # shape and dtype of an example


def client_step(
    setting: Setting, task: Task, num_clients: int, row: Any
) -> dict[str, float | None]:
    """FLOPs of a step, means over clients: "products" of all models, and by "xla".

    What each of them counts, `products` and `by_xla` say. `row` has the shape and dtype
    of an example.
    """
    return {
        "products": _mean(products, setting, task, num_clients, row),
        "xla": _mean(by_xla, setting, task, num_clients, row),
    }


def products(step: Step) -> float:
    """FLOPs of the products in one local step of the method.

    Ditto's step of data is one for each of its two models.
    """
    algorithm = step.algorithm

    def first(key: Key, data: ClientData) -> Any:
        server, client, _ = first_turn(algorithm, step.task, 1, key, data)
        return server, client

    def train(key: Key, server: Any, client: Any, data: ClientData) -> Any:
        turn = Turn(
            key=key,
            round=data.size,
            steps=data.size,
            id=data.size,
            num_clients=1,
            public=data,
        )
        message = algorithm.message(turn, server, client)
        return algorithm.train(turn, message, client, data)

    key: Any = jax.eval_shape(jax.random.key, 0)
    data = shapes_of_client(step.row.shape)
    # Apart: what draws the first states is no part of a step.
    server, client = jax.eval_shape(first, key, data)
    return product_flops(train, key, server, client, data)


def by_xla(step: Step) -> float | None:
    """FLOPs of all operations in one step on the loss, by XLA; None as `lowered`.

    `products` counts products alone, but of all models that the method trains.
    """
    program = lowered(step)
    # Before XLA compiles it: nothing is a call of a library yet, of which XLA counts
    # nothing.
    account = program.cost_analysis() if program else None
    return (account or {}).get("flops")


def lowered(step: Step) -> Any:
    """One step of the optimizer on the loss, lowered.

    None for a model with a loop, for XLA counts its body once.
    """
    task = step.task
    rate: Any = step.local.learning_rate
    optimizer = step.local.optimizer(rate)

    def take(params: Params, batch: Batch, key: Key) -> Params:
        grads = jax.grad(task.loss)(params, batch, key)
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        return optax.apply_updates(params, updates)

    key: Any = jax.eval_shape(jax.random.key, 0)
    arguments = (shapes_of_model(task), _batch_shape(step), key)
    if has_loop(take, *arguments):
        return None
    return jax.jit(take).lower(*arguments)


def _batch_shape(step: Step) -> Batch:
    """One minibatch as shapes."""
    rows = step.local.batch_size
    shape: Any = jax.ShapeDtypeStruct
    return Batch(
        x=shape((rows, *step.row.shape), step.row.dtype),
        y=shape((rows,), jnp.int32),
        mask=shape((rows,), jnp.float32),
    )


def _mean(
    figure: Callable[[Step], float | None],
    setting: Setting,
    task: Task,
    num_clients: int,
    row: Any,
) -> float | None:
    """The mean of a figure over the clients; None where an architecture has none."""
    groups = setting.groups
    if groups is None:
        return figure(Step(setting.algorithm, task, setting.local, row))
    total = 0.0
    for group, task_of in enumerate(groups.tasks):
        value = figure(Step(groups.algorithms[group], task_of, setting.local, row))
        if value is None:
            return None
        total += len(groups.members(group, num_clients)) * value
    return total / num_clients
