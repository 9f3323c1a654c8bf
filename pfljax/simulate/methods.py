"""Builds a method for a model, and explains the errors of a user's own method."""

import contextlib
import os
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

import pfljax
from pfljax import algorithms
from pfljax.core.linear import is_linear
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import require_a

# What Python and JAX raise for values of other types and shapes.
MISFITS = (
    TypeError, AttributeError, LookupError, AssertionError, ArithmeticError, ValueError,
)  # fmt: skip
LIBRARY = Path(pfljax.__file__).parent


def build(name: str, task: Task, local: Local, options: Mapping[str, Any]) -> Algorithm:
    """The method of this name for a model.

    Raises:
      ValueError: an option is wrong, or the model lacks a part that the method needs.
    """
    algorithm = algorithms.method(name)(task, local, **options)
    if is_own(name):
        owner = f"what {algorithms.find_file(name)} returned"
        require_a(owner, algorithm, Algorithm, "an Algorithm of pfljax.core.types")
    _check_parts(name, algorithm, task)
    return algorithm


def is_own(name: str) -> bool:
    """Whether the method's file is not one of pfljax."""
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


@contextlib.contextmanager
def explain_misfit(name: str) -> Iterator[None]:
    """Explains in one line what goes wrong because of a user's own method.

    An error that its file raises names the line. Where pfljax or JAX fails at what the
    method's functions take or return, no file is to blame: the message says that they
    do not fit together. A fault of pfljax may look the same; the original error is the
    cause of the one that is raised.
    """
    try:
        yield
    except Exception as error:
        if not is_own(name):
            raise
        file = algorithms.find_file(name)
        if _is_raised_in(file, error):
            raise ValueError(
                f"the method {name!r} failed at {algorithms.locate(error, file)}; mend "
                "its file"
            ) from error
        if _is_refusal(error) or not isinstance(error, MISFITS):
            raise
        # JAX explains its errors in paragraphs; the first line says what came.
        came = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ValueError(
            f"the functions of the method {name!r} do not fit together ({came}); mend "
            f"{file} (see pfljax conformance {name}); PFLJAX_TRACE=1 shows where it was"
        ) from error


def _is_raised_in(file: Path, error: BaseException) -> bool:
    """Whether the innermost frame of this file and pfljax is one of this file."""
    method_file = Path(os.path.abspath(file))
    paths = []
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(os.path.abspath(frame.filename))
        # Frames of JAX and other libraries say nothing about whose fault it is.
        if path == method_file or LIBRARY in path.parents:
            paths.append(path)
    return paths[-1:] == [method_file]


def _is_refusal(error: BaseException) -> bool:
    """Whether pfljax refused something itself: JAX raises ValueErrors as well."""
    if not isinstance(error, ValueError):
        return False
    *_, innermost = traceback.extract_tb(error.__traceback__)
    within = LIBRARY in Path(os.path.abspath(innermost.filename)).parents
    # JAX removes its own frames, so that what it raises ends at our call of it.
    return within and (innermost.line or "").startswith("raise")
