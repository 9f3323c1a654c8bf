"""Callbacks of a program, taken as it is traced: each tells what it raises.

JAX logs most of what they raise (`callbacks.heard`), but a log may be off, and results
that do not fit are found out after it. Of several devices the others would then wait
for the one that failed.
"""

import contextlib
import functools
import inspect
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.experimental
import numpy as np

from pfljax.runtime import callbacks
from pfljax.runtime.callbacks import MisfitError

HOMES = {"pure_callback": jax, "io_callback": jax.experimental, "callback": jax.debug}


@contextlib.contextmanager
def held() -> Iterator[None]:
    """While a user's file is imported, or its functions are traced: callbacks tell.

    What they raise in this thread meanwhile goes to whoever called them.
    """
    plain = {name: getattr(home, name) for name, home in HOMES.items()}
    for name, home in HOMES.items():
        setattr(home, name, _holding(plain[name]))
    try:
        with callbacks.ignored():
            yield
    finally:
        for name, home in HOMES.items():
            setattr(home, name, plain[name])


def _holding(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function of JAX that takes a callback, of one that tells."""
    signature = inspect.signature(call)

    @functools.wraps(call)
    def holding(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return call(*args, **kwargs)  # which tells of it
        given = bound.arguments
        passed = given.get("args", ()), given.get("kwargs", {})
        axes = [np.ndim(leaf) for leaf in jax.tree.leaves(passed)]
        shapes = given.get("result_shape_dtypes")
        if given.get("vmap_method") == "legacy_vectorized":
            shapes = None  # nobody knows which axes it adds
        callback = given["callback"]
        where = _where(callback) or _caller()
        given["callback"] = _telling(callback, shapes, axes, where)
        return call(*bound.args, **bound.kwargs)

    return holding


def _telling(
    callback: Any, shapes: Any, axes: list[int], where: str | None
) -> Callable[..., Any]:
    """The callback, which tells what it raises; results are held to `shapes`, if any.

    `axes` are those of the leaves of its arguments as they were traced: a vmap adds
    others in front, to results as well.
    """

    def telling(*args: Any, **kwargs: Any) -> Any:
        try:
            result = callback(*args, **kwargs)
            if shapes is not None:
                passed = jax.tree.leaves((args, kwargs))
                _check(result, shapes, _added(passed, axes))
        except BaseException as error:
            callbacks.tell(error, where)
            raise
        return result

    return telling


def _added(passed: list[Any], axes: list[int]) -> tuple[int, ...]:
    """The sizes of the axes that a vmap added in front of what is passed."""
    if len(passed) != len(axes):  # None is a leaf to some
        return ()
    leading = [np.shape(x)[: np.ndim(x) - n] for x, n in zip(passed, axes, strict=True)]
    return np.broadcast_shapes(*leading)


def _check(result: Any, shapes: Any, added: tuple[int, ...]) -> None:
    """Raises a MisfitError unless the result is what JAX will take for it."""
    returned = [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
    expected = jax.tree.leaves(shapes)
    fits = len(returned) == len(expected)
    for value, form in zip(returned, expected, strict=False):
        same_type = jax.dtypes.canonicalize_dtype(value.dtype) == form.dtype
        fits &= same_type and value.shape == (*added, *form.shape)
    if not fits:
        wanted = [(form.dtype, (*added, *form.shape)) for form in expected]
        came = [(value.dtype, value.shape) for value in returned]
        raise MisfitError(f"it returned {_forms(came)}; expected {_forms(wanted)}")


def _forms(arrays: list[tuple[Any, tuple[int, ...]]]) -> str:
    """Types and shapes, such as "float32[3], int32[]"."""
    return ", ".join(f"{dtype}{list(shape)}" for dtype, shape in arrays) or "nothing"


def _where(callback: Any) -> str | None:
    """FILE:LINE of a function; None of what was not written in Python."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    if callable(callback) and not inspect.isroutine(callback):
        callback = type(callback).__call__
    code = getattr(inspect.unwrap(callback), "__code__", None)
    if code is None or callbacks.is_of_others(code.co_filename):
        return None
    return f"{code.co_filename}:{code.co_firstlineno}"


def _caller() -> str | None:
    """FILE:LINE of the user's call that is being traced."""
    return callbacks.innermost(traceback.extract_stack())
