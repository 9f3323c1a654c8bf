"""A method as a run has it: built for its model, and held to the contract at the edge.

A method of one's own may hold any mistake. Its functions are called while they are
traced, before anything trains: what they raise is told with the line of their file.
"""

import contextlib
import functools
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import pfljax
from pfljax import algorithms
from pfljax.core.linear import is_linear
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import require_a, require_call

# The parameters of a method's functions: what the engine calls them with.
PARAMETERS = {
    "init": ("params", "num_clients", "key"),
    "init_client": ("params", "client_id", "key"),
    "message": ("turn", "server", "client"),
    "train": ("turn", "message", "client", "data"),
    "aggregate": ("server", "uploads", "cohort"),
    "predict": ("params", "batch"),
    "server_model": ("server",),
    "personal": ("turn", "server", "client", "data"),
    "newcomer": ("turn", "server", "data"),
    "endpoints": ("server", "client"),
    "quantities": ("server", "client"),
}
COUNTS = {  # what a function returns as a tuple
    "train": ("client", "upload", "metrics"),
    "endpoints": ("params", "params"),
}
OPTIONAL = ("server_model", "personal", "newcomer", "endpoints", "quantities")
# What Python and JAX raise of values of other types and shapes.
MISFITS = (TypeError, AttributeError, LookupError, AssertionError, ArithmeticError)
LIBRARY = Path(pfljax.__file__).parent


def build(name: str, task: Task, local: Local, options: Mapping[str, Any]) -> Algorithm:
    """The method of this name for a model.

    Raises:
      ValueError: an option is wrong, the model lacks a part that the method needs, or
        the method's own file is at fault.
    """
    factory = algorithms.method(name)
    file = algorithms.find_file(name)
    if is_own(name):
        algorithm = _own(factory, file, task, local, options)
    else:
        algorithm = factory(task, local, **options)
    _check_parts(name, algorithm, task)
    return algorithm


def is_own(name: str) -> bool:
    """Whether the method's file is none of pfljax."""
    return LIBRARY not in algorithms.find_file(name).parents


def _check_parts(name: str, algorithm: Algorithm, task: Task) -> None:
    """Refuses a model without a part, or of another form, than the method needs."""
    model_parts = set(jax.tree.leaves(task.groups))
    missing = [part for part in algorithm.parts if part not in model_parts]
    if missing:
        raise ValueError(
            f"{name} sends one part of a model and keeps the other, but the model has "
            f"no parameters in its {' and '.join(missing)}; choose one with a body and "
            "a head, such as model mlp"
        )
    if algorithm.linear and not is_linear(task):
        raise ValueError(
            f"{name} is a convex solver, but the model is a network: its logits are "
            "not linear in its parameters; choose model logistic"
        )


def _own(
    factory: Callable,
    file: Path,
    task: Task,
    local: Local,
    options: Mapping[str, Any],
) -> Algorithm:
    """The method of a user's file, whose functions tell of their mistakes."""
    algorithm = _explain("factory", factory, file)(task, local, **options)
    return _explain_all(algorithm, file)


def _explain_all(algorithm: Algorithm, file: Path) -> Algorithm:
    """The method, and what it does `then`, whose functions tell of their mistakes."""
    functions = {}
    for role, parameters in PARAMETERS.items():
        function: Any = getattr(algorithm, role)
        if function is None and role in OPTIONAL:
            continue
        _check_call(
            f"{file}: `{role}` of the method {file.stem!r}", function, parameters
        )
        functions[role] = _explain(role, function, file)
    if algorithm.then is not None:
        functions["then"] = _explain_all(algorithm.then, file)
    return algorithm._replace(**functions)


@contextlib.contextmanager
def explain_misfit(name: str) -> Iterator[None]:
    """Tells of a method of one's own that passes on what does not fit its functions.

    The engine or a function of pfljax then fails at it, where no file is to blame.
    Faults of pfljax may look the same: the error is the cause of the one that is told.
    """
    try:
        yield
    except (*MISFITS, ValueError) as error:
        if not is_own(name) or is_refusal(error):
            raise
        file = algorithms.find_file(name)
        kind = type(error).__name__
        # JAX explains its errors in paragraphs; the first line says what came.
        came = str(error).partition("\n")[0]
        raise ValueError(
            f"what the functions of the method {name!r} return does not fit together "
            f"({kind}: {came}); mend {file} (see pfljax conformance {name}); "
            "PFLJAX_TRACE=1 shows where it was"
        ) from error


def is_refusal(error: BaseException) -> bool:
    """Whether pfljax refused something itself: JAX raises ValueErrors as well."""
    if not isinstance(error, ValueError):
        return False
    *_, innermost = traceback.extract_tb(error.__traceback__)
    within = LIBRARY in Path(os.path.abspath(innermost.filename)).parents
    # JAX takes its own frames out, so that what it raises ends at our call of it.
    return within and (innermost.line or "").startswith("raise")


def _check_call(owner: str, function: Any, parameters: tuple[str, ...]) -> None:
    """Refuses what cannot be called with these."""
    expected = f"a function of ({', '.join(parameters)})"
    require_call(owner, function, parameters, expected)


def _explain(role: str, function: Any, file: Path) -> Callable:
    """The function; what its file is to blame for names the line."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        # A file of the user's may raise anything; what others raise goes through.
        except Exception as error:
            if not _is_to_blame(role, error, file):
                raise
            raise ValueError(
                f"`{role}` of the method {file.stem!r} failed at "
                f"{algorithms.locate(error, file)}; mend its file"
            ) from error
        _check_result(f"{file}: `{role}` of the method {file.stem!r}", role, result)
        return result

    return call


def _is_to_blame(role: str, error: BaseException, file: Path) -> bool:
    """Whether the innermost code, of the user's file and pfljax, is the file's."""
    # A sweep asks by it which options may be traced.
    if role == "factory" and isinstance(error, jax.errors.ConcretizationTypeError):
        return False
    innermost = None
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(os.path.abspath(frame.filename))
        # Frames of JAX and others beneath say nothing of whose fault it is.
        if path == Path(os.path.abspath(file)) or LIBRARY in path.parents:
            innermost = path
    return innermost is not None and LIBRARY not in innermost.parents


def _check_result(owner: str, role: str, result: Any) -> None:
    """Refuses what a function returned where the engine could not say whose it is."""
    if role == "factory":
        expected = "an Algorithm of pfljax.core.types"
        require_a(f"what {owner} returned", result, Algorithm, expected)
        return
    count = COUNTS.get(role)
    is_tuple = isinstance(result, tuple)
    if count and not (is_tuple and len(result) == len(count)):
        expected = f"({', '.join(count)})"
        require_a(f"what {owner} returned", result, (), expected)
    if role == "train":
        expected = "a dict of arrays by name"
        require_a(f"the metrics of {owner}", result[2], Mapping, expected)
    for leaf in jax.tree.leaves(result):
        is_number = isinstance(leaf, jax.Array | np.ndarray | np.generic | complex)
        if not is_number and not isinstance(leaf, bool | int | float):
            require_a(f"a leaf of what {owner} returned", leaf, (), "arrays alone")
