"""FLOPs of one local step of a method, counted by XLA.

Training is traced and lowered, but not compiled. That takes a tenth of a second, and
one or two seconds for a ResNet-18.
"""

from typing import Any

import jax

from pfljax.core.communication import (
    first_turn,
    shape_of_key,
    shapes_of_batch,
    shapes_of_client,
    shapes_of_model,
)
from pfljax.core.types import Algorithm, ClientData, Key, Task, Turn
from pfljax.engine import Setting
from pfljax.engine.state import init_stacks
from pfljax.simulate.shape import Shape


def step_flops(setting: Setting, task: Task, shape: Shape) -> float | None:
    """FLOPs of one local step of all models that the method trains.

    It is the mean over clients, or None if the model has a loop, such as an LSTM.
    """
    batch_size = setting.local.batch_size
    total = 0.0
    for stack in init_stacks(setting._replace(mesh=None), task, shape.num_clients):
        flops = _flops(stack.algorithm, stack.task, shape, batch_size)
        if flops is None:
            return None
        total += len(stack.ids) * flops
    return total / shape.num_clients


def _flops(
    algorithm: Algorithm, task: Task, shape: Shape, batch_size: int
) -> float | None:
    key = shape_of_key()
    # XLA counts the body of a loop once. That is right for the loop over steps, but too
    # little for a loop within the model.
    loss = jax.jit(task.loss)
    lowered = loss.lower(
        shapes_of_model(task), shapes_of_batch(batch_size, shape.input_shape), key
    )
    if "stablehlo.while" in lowered.as_text():
        return None

    def first(key: Key, data: ClientData) -> Any:
        return first_turn(algorithm, task, shape.num_clients, key, data)[:2]

    def train(key: Key, server: Any, client: Any, data: ClientData) -> Any:
        turn = Turn(
            key=key,
            round=data.size,
            steps=data.size,
            id=data.size,
            num_clients=shape.num_clients,
            public=data,
        )
        message = algorithm.message(turn, server, client)
        return algorithm.train(turn, message, client, data)

    data = shapes_of_client(shape.input_shape)
    # The first states are arguments, since drawing them is not part of a step.
    server, client = jax.eval_shape(first, key, data)
    account = jax.jit(train).lower(key, server, client, data).cost_analysis()
    return (account or {}).get("flops")
