"""What a method gives, where others rely on it, traced before anything is compiled.

An evaluation would take logits of any shape: `argmax` and the labels broadcast.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pfljax import algorithms
from pfljax.core.communication import (
    first_turn,
    shapes_of_client,
    shapes_of_model,
    trace_exchanges,
)
from pfljax.core.types import Batch, ClientData, Key, Task
from pfljax.engine import Setting, contract
from pfljax.engine.contract import first_change
from pfljax.simulate import methods


def check(
    name: str,
    setting: Setting,
    task: Task,
    num_clients: int,
    input_shape: tuple[int, ...],
) -> None:
    """Refuses a method of one's own whose models give no logits [B, K].

    Raises:
      ValueError: it names the method, its file and the function that is at fault.
    """
    if not methods.is_own(name):
        return
    judge = partial(_judge, name, setting, task, num_clients)
    key: Any = jax.eval_shape(jax.random.key, 0)
    batch = _shapes_of_batch(setting.local.batch_size, input_shape)
    jax.eval_shape(judge, key, shapes_of_client(input_shape), batch)


def check_observed(
    setting: Setting,
    task: Task,
    num_clients: int,
    input_shape: tuple[int, ...],
) -> None:
    """Refuses a selection that looks at models with a method that sends others.

    Raises:
      ValueError: it says what an upload is in place of a model.
    """
    contract.check_selection(setting)
    if setting.selection.observe is None:
        return
    sent, *_ = trace_exchanges(setting.algorithm, task, num_clients, input_shape)
    contract.check_model(sent.upload, shapes_of_model(task))


def _judge(
    name: str,
    setting: Setting,
    task: Task,
    num_clients: int,
    key: Key,
    data: ClientData,
    batch: Batch,
) -> None:
    """Predicts a batch by each model that an evaluation asks the method for."""
    algorithm = setting.algorithm
    server, client, turn = first_turn(algorithm, task, num_clients, key, data)

    def check_prediction(role: str, model: Any, predict: Callable) -> None:
        with _fitting(name, role):
            logits = predict(model, batch)
        _check_logits(name, logits, batch.y.size, task.num_classes)

    if algorithm.server_model is not None:
        model = algorithm.server_model(server)
        check_prediction("server_model", model, task.predict)
        if algorithm.personal is None:
            check_prediction("server_model", model, algorithm.predict)
    if algorithm.personal is not None:
        model = algorithm.personal(turn, server, client, data)
        check_prediction("personal", model, algorithm.predict)
        if algorithm.newcomer is not None:
            newcomer = algorithm.newcomer(turn, server, data)
            _check_newcomer(name, model, newcomer)
    if algorithm.quantities is not None:
        _check_quantities(name, algorithm.quantities(server, client))


def _shapes_of_batch(batch_size: int, input_shape: tuple[int, ...]) -> Any:
    """A minibatch as shapes."""
    shape: Any = jax.ShapeDtypeStruct
    return Batch(
        x=shape((batch_size, *input_shape), jnp.float32),
        y=shape((batch_size,), jnp.int32),
        mask=shape((batch_size,), jnp.float32),
    )


@contextlib.contextmanager
def _fitting(name: str, role: str) -> Iterator[None]:
    """Around `predict`: a model that it cannot take is told by who gave it."""
    try:
        yield
    # Layers raise errors of their own where parameters are missing.
    except Exception as error:
        if methods.is_refusal(error):
            raise
        came = str(error).partition("\n")[0]
        raise ValueError(
            f"what `{role}` of the method {name!r} returned does not fit what predicts "
            f"by it ({type(error).__name__}: {came}); expected a model; mend "
            f"{algorithms.find_file(name)} (see pfljax conformance {name})"
        ) from error


def _check_logits(name: str, logits: Any, batch_size: int, num_classes: int) -> None:
    expected = (batch_size, num_classes)
    is_one = isinstance(logits, jax.Array)
    if is_one and logits.shape == expected:
        return
    came = f"shape {list(logits.shape)}" if is_one else f"a {type(logits).__name__}"
    raise ValueError(
        f"`predict` of the method {name!r} returned logits of {came}; expected [B, K], "
        f"here {list(expected)}: a row of {num_classes} logits for each of "
        f"{batch_size} rows; mend {algorithms.find_file(name)}"
    )


def _check_newcomer(name: str, personal: Any, newcomer: Any) -> None:
    change = first_change(personal, newcomer)
    if change is not None:
        raise ValueError(
            f"`newcomer` of the method {name!r} returned another model than "
            f"`personal`: {change}; mend {algorithms.find_file(name)}"
        )


def _check_quantities(name: str, quantities: Any) -> None:
    """Refuses what no table of clients can show."""
    came = f"a {type(quantities).__name__}"
    if isinstance(quantities, Mapping):
        wrong = [key for key, value in quantities.items() if not _is_real(key, value)]
        if not wrong:
            return
        value = jnp.asarray(quantities[wrong[0]])
        came = f"{wrong[0]!r}: {value.dtype}{list(value.shape)}"
    raise ValueError(
        f"`quantities` of the method {name!r} returned {came}; expected a dict of one "
        f"real number of the client by name; mend {algorithms.find_file(name)}"
    )


def _is_real(key: Any, value: Any) -> bool:
    """Whether it is a real number by a name."""
    is_real = jnp.shape(value) == () and not jnp.iscomplexobj(value)
    return isinstance(key, str) and is_real
