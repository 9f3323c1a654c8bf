"""FLOPs of one local step of a method: its work, in gradients whose FLOPs XLA counts.

The gradient is traced and lowered, but not compiled. That takes a tenth of a second,
and one or two seconds for a ResNet-18.
"""

import jax
import numpy as np

from pfljax.core.communication import shape_of_key, shapes_of_batch, shapes_of_model
from pfljax.core.types import Task
from pfljax.engine import Setting, count_gradients
from pfljax.engine.state import init_stacks
from pfljax.simulate.shape import Shape

STEPS = 1000  # of a client, so that work in epochs counts in proportion


def step_flops(setting: Setting, task: Task, shape: Shape) -> float | None:
    """FLOPs of the gradients of one local step, of all models that the method trains.

    It is the mean over clients, or None if the model has a loop, such as an LSTM.
    """
    local = setting.local
    size = STEPS * local.batch_size / (local.epochs or 1)
    total = 0.0
    for stack in init_stacks(setting._replace(mesh=None), task, shape.num_clients):
        flops = _flops_of_gradient(stack.task, local.batch_size, shape)
        if flops is None:
            return None
        alone = setting._replace(algorithm=stack.algorithm, groups=None)
        work = count_gradients(alone, np.int32(STEPS), np.int32(size), False)
        total += len(stack.ids) * flops * float(work) / STEPS
    return total / shape.num_clients


def _flops_of_gradient(task: Task, batch_size: int, shape: Shape) -> float | None:
    """FLOPs of the gradient of the loss on a minibatch."""
    arguments = shapes_of_batch(task, batch_size, shape.input_shape), shape_of_key()
    lowered = jax.jit(jax.grad(task.loss)).lower(shapes_of_model(task), *arguments)
    # XLA counts the body of a loop once, which is too little for a loop in the model.
    if "stablehlo.while" in lowered.as_text():
        return None
    return (lowered.cost_analysis() or {}).get("flops")
