"""Predicts with the arrays that `export` wrote, which are named but not structured."""

from collections.abc import Callable
from typing import Any

import jax

from pfljax.core import tree
from pfljax.core.communication import (
    first_turn,
    shape_of_key,
    shapes_of_client,
    shapes_of_model,
)
from pfljax.core.types import Algorithm, Array, Batch, Task
from pfljax.engine.contract import first_change
from pfljax.simulate.architectures import task_of_server
from pfljax.simulate.shape import Shape

Predict = Callable[[Any, Batch], Array]


def make_predict(algorithm: Algorithm, task: Task, shape: Shape) -> Predict:
    """A `predict` for exported arrays, of a client with this model or of the server.

    The personal model of a method may be more than a network, as that of FedProto, and
    its server may have another network than its clients.

    Raises:
      ValueError: in `predict`, if the arrays are not those of such a model.
    """
    forms = _forms(algorithm, task, shape)

    def predict(model: Any, batch: Batch) -> Array:
        arrays = tree.paths(model)
        for shapes, predict_batch in forms:
            expected = tree.paths(shapes)
            if first_change(expected, arrays) is None:
                leaves = [arrays[name] for name in expected]
                record = jax.tree.unflatten(jax.tree.structure(shapes), leaves)
                return predict_batch(record, batch)
        change = first_change(tree.paths(forms[0][0]), arrays)
        raise ValueError(
            f"{change}; give the arrays that `pfljax export` wrote of the same run and "
            "client"
        )

    return predict


def _forms(algorithm: Algorithm, task: Task, shape: Shape) -> list[tuple[Any, Predict]]:
    """(shapes, predict) of each model that a run may export; first the personal one."""

    def model(key: Any, data: Any) -> Any:
        server, client, turn = first_turn(algorithm, task, shape.num_clients, key, data)
        if algorithm.personal is not None:
            return algorithm.personal(turn, server, client, data)
        assert algorithm.server_model is not None
        return algorithm.server_model(server)

    client = shapes_of_client(task, shape.input_shape)
    personal = jax.eval_shape(model, shape_of_key(), client)
    forms = [(personal, algorithm.predict)]
    for other in (task_of_server(algorithm, task), task, task.proxy, task.wrapped):
        if other is not None:
            forms.append((shapes_of_model(other), other.predict))
    return forms
