"""Results of callbacks, held to the shapes that their programs are told of."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.experimental
import numpy as np

from pfljax.runtime.callbacks import MisfitError


@contextlib.contextmanager
def held() -> Iterator[None]:
    """While a program is traced: its callbacks raise where their results do not fit.

    JAX checks them as well, but outside of what it logs: `heard` would not hear.
    """
    homes = {"pure_callback": jax, "io_callback": jax.experimental}
    plain = {name: getattr(home, name) for name, home in homes.items()}
    for name, home in homes.items():
        setattr(home, name, _checking(plain[name]))
    try:
        yield
    finally:
        for name, home in homes.items():
            setattr(home, name, plain[name])


def _checking(call: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.pure_callback` or `io_callback`, which holds results to their shapes."""

    @functools.wraps(call)
    def checking(callback: Any, shapes: Any, *args: Any, **options: Any) -> Any:
        def returned_as_told(*args: Any, **kwargs: Any) -> Any:
            result = callback(*args, **kwargs)
            returned, expected = jax.tree.leaves(result), jax.tree.leaves(shapes)
            fits = map(_fits, returned, expected)
            if len(returned) != len(expected) or not all(fits):
                said = f"it returned {_forms(result)}; expected {_forms(shapes)}"
                raise MisfitError(said, _where(callback))
            return result

        return call(returned_as_told, shapes, *args, **options)

    return checking


def _fits(value: Any, expected: Any) -> bool:
    """Whether an array is of this shape, under any axes of a vmap, and of this type."""
    value = np.asarray(value)
    shape = tuple(expected.shape)
    extra = value.ndim - len(shape)
    same_type = jax.dtypes.canonicalize_dtype(value.dtype) == expected.dtype
    return same_type and extra >= 0 and value.shape[extra:] == shape


def _forms(tree: Any) -> str:
    """The types and shapes of the leaves, such as "float32[3], int32[]"."""
    forms = []
    for leaf in jax.tree.leaves(tree):
        leaf = leaf if hasattr(leaf, "shape") else np.asarray(leaf)
        forms.append(f"{leaf.dtype}{list(leaf.shape)}")
    return ", ".join(forms) or "nothing"


def _where(callback: Any) -> str | None:
    """FILE:LINE of a function; None of what was not written in Python."""
    code = getattr(inspect.unwrap(callback), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else None
