"""Predicts with the arrays that `export` wrote, which are named but not structured."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from pfljax.core import tree
from pfljax.core.communication import first_turn, shapes_of_client, shapes_of_model
from pfljax.core.types import Algorithm, Array, Batch, Task
from pfljax.simulate.architectures import task_of_server
from pfljax.simulate.shape import Shape

Predict = Callable[[Any, Batch], Array]


class Form(NamedTuple):
    """The shapes of a model that a run may export, and the function that predicts."""

    shapes: Any
    predict: Predict


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
        for form in forms:
            expected = tree.paths(form.shapes)
            if _shapes(arrays) == _shapes(expected):
                leaves = [arrays[name] for name in expected]
                record = jax.tree.unflatten(jax.tree.structure(form.shapes), leaves)
                return form.predict(record, batch)
        raise ValueError(
            _explain_misfit(_shapes(arrays), _shapes(tree.paths(forms[0].shapes)))
        )

    return predict


def _explain_misfit(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Describes the first difference between arrays and the model of the run."""
    names = {**expected, **found}
    name = next(name for name in names if found.get(name) != expected.get(name))
    return (
        f"{name} is {found.get(name, 'missing')}, expected "
        f"{expected.get(name, 'no such array')}; give the arrays that `pfljax export` "
        "wrote of the same run and client"
    )


def _shapes(arrays: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(array.shape) for name, array in arrays.items()}


def _forms(algorithm: Algorithm, task: Task, shape: Shape) -> list[Form]:
    """The models that a run may export; the personal one comes first."""

    def model(key: Any, data: Any) -> Any:
        server, client, turn = first_turn(algorithm, task, shape.num_clients, key, data)
        if algorithm.personal is not None:
            return algorithm.personal(turn, server, client, data)
        assert algorithm.server_model is not None
        return algorithm.server_model(server)

    key: Any = jax.eval_shape(jax.random.key, 0)
    personal = jax.eval_shape(model, key, shapes_of_client(shape.input_shape))
    forms = [Form(personal, algorithm.predict)]
    for other in (task_of_server(algorithm, task), task, task.proxy):
        if other is not None:
            forms.append(Form(shapes_of_model(other), other.predict))
    return forms
