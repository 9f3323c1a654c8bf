"""Checks that a model, its loss and its metrics fit the targets, by tracing alone.

Outputs of another shape would broadcast against the targets, and so would losses.
"""

from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.communication import shape_of_key
from pfljax.core.kinds import cross_entropy
from pfljax.core.types import Batch, Task
from pfljax.runs.settings import Experiment
from pfljax.simulate.shape import Shape

ROWS = 3  # examples of a traced batch


def check(experiment: Experiment, task: Task, shape: Shape) -> None:
    """Raises a ValueError if outputs, losses or metrics have wrong shapes."""
    if task.example_losses is cross_entropy and not shape.metrics:
        return  # `models.check_task` looks at the logits of classes
    if shape.kind == "ratings" and task.vocab is None:
        raise ValueError(
            "x is a user and an item of each rating, but the model takes real numbers; "
            "choose matrix_factorization, or a model with nn.Embed"
        )
    x = jnp.zeros((ROWS, *shape.input_shape))
    of_classes = shape.kind in ("classes", "tokens")
    y = jnp.zeros((ROWS, *shape.target_shape), jnp.int32 if of_classes else jnp.float32)

    def predict(key: Any) -> Any:
        return task.predict(task.init(key), Batch.full(x, y))

    outputs = jax.eval_shape(predict, shape_of_key())
    _check_outputs(shape, outputs.shape)
    losses = jax.eval_shape(task.example_losses, outputs, y)
    _require("loss", str(experiment.loss), losses, (ROWS,), "one number an example")
    for name, compute in shape.metrics:
        value = _trace(name, compute, outputs, y)
        _require("metric", name, value, (), "one number for all examples of a client")


def _trace(name: str, compute: Any, outputs: Any, y: Any) -> Any:
    try:
        return jax.eval_shape(compute, outputs, y, jnp.ones(ROWS))
    except TypeError as error:  # a text, or a type of the user's own
        raise ValueError(f"metric {name!r} gives no JAX number ({error})") from error


def _check_outputs(shape: Shape, outputs: tuple[int, ...]) -> None:
    """One output for each target; of tokens, an output for each class of each."""
    expected = (ROWS, *shape.target_shape)
    if shape.kind == "tokens":
        outputs = outputs[:-1]
        hint = "a model of each token, such as char_lstm:each=True, and as many targets"
    else:
        hint = "a model with as many outputs"
    if shape.kind != "classes" and outputs != expected:
        raise ValueError(
            f"the model predicts targets of shape {[*outputs[1:]]} for an example, but "
            f"the data have {[*expected[1:]]}; choose {hint}"
        )


def _require(
    what: str, name: str, value: Any, expected: tuple[int, ...], meaning: str
) -> None:
    shape = getattr(value, "shape", None)
    if shape != expected:
        came = type(value).__name__ if shape is None else f"shape {[*shape]}"
        raise ValueError(
            f"{what} {name!r} gives {came} for {ROWS} examples, expected shape "
            f"{[*expected]}: {meaning}"
        )
