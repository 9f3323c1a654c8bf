"""Checks what models take and give, by tracing, before anything is compiled.

An evaluation would take logits of any shape: `argmax` and the labels broadcast.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from pfljax import models
from pfljax.core.communication import (
    first_turn,
    shape_of_key,
    shapes_of_batch,
    shapes_of_client,
    shapes_of_model,
    trace_exchanges,
)
from pfljax.core.components import is_own
from pfljax.core.types import Batch, ClientData, Key, Task
from pfljax.data import Federation
from pfljax.engine import Setting, contract
from pfljax.runtime.programs import Same, memoize
from pfljax.simulate.shape import Shape


@memoize
def check_task(
    own: Same, input_shape: tuple[int, ...], num_classes: int, kind: str
) -> None:
    """`models.check_task` of the user's own model, once for all widths and runs."""
    models.check_task(own.value, input_shape, num_classes, kind)


def check_tokens(tasks: Iterable[Task], federation: Federation) -> None:
    """Refuses examples with what is no token of the vocabulary of one of the models.

    Raises:
      ValueError: a model of tokens would take it for another token, or for none.
    """
    vocabs = {task.vocab for task in tasks if task.vocab is not None}
    for data in (federation.train, federation.public):
        if data is not None:
            for vocab in vocabs:
                _check_tokens(np.asarray(data.examples.x), federation.shift, vocab)


def _check_tokens(x: np.ndarray, shift: Any, vocab: int | tuple[int, ...]) -> None:
    if isinstance(vocab, tuple):
        for column, count in zip(np.moveaxis(x, -1, 0), vocab, strict=True):
            _check_tokens(column, shift, count)
        return
    tokens = x - np.asarray(shift) if np.any(shift) else x
    expected = f"the model takes tokens from 0 to {vocab - 1}"
    if tokens.dtype.kind == "f" and (tokens % 1).any():
        raise ValueError(
            f"x holds {tokens[tokens % 1 != 0][0]:g}; {expected}, whole numbers: give "
            "it tokens, or choose a model of real numbers, such as mlp"
        )
    if tokens.min() < 0:
        raise ValueError(
            f"the smallest token is {int(tokens.min())}; {expected}: renumber them"
        )
    largest = int(tokens.max())
    if largest >= vocab:
        raise ValueError(
            f"the largest token is {largest}; {expected}: give it a vocab of at least "
            f"{largest + 1} (or so many users or items), or renumber the tokens"
        )


def check_own(
    name: str,
    setting: Setting,
    task: Task,
    shape: Shape,
) -> None:
    """Refuses a method of the user's own that returns wrong types or shapes.

    Raises:
      ValueError: it names the method, its file and the function that is at fault.
    """
    if not is_own(name):
        return
    algorithm = setting.algorithm

    def predict(key: Key, data: ClientData, batch: Batch) -> tuple[dict, Any, Any]:
        server, client, turn = first_turn(algorithm, task, shape.num_clients, key, data)
        message = algorithm.message(turn, server, client)
        trained = algorithm.train(turn, message, client, data)
        *_, metrics = contract.check_training(algorithm, trained)
        if algorithm.then is None:
            contract.check_metrics(metrics)
        logits = {}
        quantities = None
        if algorithm.server_model is not None:
            model = algorithm.server_model(server)
            predict = task.predict if algorithm.personal else algorithm.predict
            logits["server_model"] = predict(model, batch)
        if algorithm.personal is not None:
            model = algorithm.personal(turn, server, client, data)
            logits["personal"] = algorithm.predict(model, batch)
        if algorithm.newcomer is not None:
            model = algorithm.newcomer(turn, server, data)
            logits["newcomer"] = algorithm.predict(model, batch)
        if algorithm.quantities is not None:
            quantities = algorithm.quantities(server, client)
        return logits, quantities, task.predict(task.init(key), batch)

    batch_size = setting.local.batch_size
    batch = shapes_of_batch(task, batch_size, shape.input_shape)
    client = shapes_of_client(task, shape.input_shape)
    traced = jax.eval_shape(predict, shape_of_key(), client, batch)
    logits, quantities, expected = traced
    for role, values in logits.items():
        _check_logits(name, role, values, expected.shape)
    if algorithm.quantities is not None:
        _check_quantities(name, quantities)


def check_observed(
    setting: Setting,
    task: Task,
    shape: Shape,
) -> None:
    """Refuses a selection that looks at models with a method that sends others.

    Raises:
      ValueError: it says what an upload is in place of a model.
    """
    contract.check_selection(setting)
    if setting.selection.observe is None:
        return
    sent, *_ = trace_exchanges(
        setting.algorithm, task, shape.num_clients, shape.input_shape
    )
    contract.check_model(sent.upload, shapes_of_model(task))


def _check_logits(name: str, role: str, logits: Any, expected: tuple[int, ...]) -> None:
    shape = getattr(logits, "shape", None)
    if shape != expected:
        came = f"a {type(logits).__name__}" if shape is None else f"shape {list(shape)}"
        raise ValueError(
            f"`predict` of the method {name!r} gave logits of {came} for the model of "
            f"`{role}`; expected {list(expected)}, as from the task's `predict`"
        )


def _check_quantities(name: str, quantities: Any) -> None:
    """Refuses what no table of clients can show."""
    is_dict = isinstance(quantities, Mapping)
    if not is_dict or not all(
        isinstance(key, str) and contract.is_real(value)
        for key, value in quantities.items()
    ):
        came = " ".join(str(quantities).split())
        raise ValueError(
            f"`quantities` of the method {name!r} returned {came}; expected a dict of "
            "one real number of the client by name"
        )
