"""Normalises raw examples inside the compiled program."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from pfljax.core.precision import EXACT
from pfljax.core.types import Array
from pfljax.models import mixed_precision


def normaliser(
    input_shape: Sequence[int],
    shift: Any,
    scale: Any,
    precision: str = EXACT,
    vocab: int | tuple[int, ...] | None = None,
) -> Callable[[Array], Array]:
    """Makes a function raw x [B, *input_shape] -> (x - shift) / scale.

    Its result has this precision. Tokens of a `vocab` are shifted, but never scaled.
    They are i32 in any precision. Integers of more than 8 bits that are not shifted or
    scaled may be tokens, and stay f32, as bfloat16 is exact up to 256 only.

    Raises:
      ValueError: a shift or scale does not broadcast to an example, or the scale has a
        zero. The function raises it for examples of another shape.
    """
    expected = tuple(input_shape)
    shift = _as_float32("shift", shift, expected)
    scale = _as_float32("scale", scale, expected)
    if (scale == 0).any():
        raise ValueError("scale has a zero, by which x is divided; use 1 there")
    if vocab is not None:
        scale = np.ones((), np.float32)
    unchanged = not shift.any() and bool((scale == 1).all())

    def normalise(x: Array) -> Array:
        if x.shape[1:] != expected:
            raise ValueError(
                f"x has shape {x.shape}, expected examples of {expected}; "
                "build the task with the input_shape of the data"
            )
        # The pool stays as it is stored, often uint8: only a batch is cast.
        centred = x.astype(jnp.float32) - shift
        normalised = centred / scale
        if vocab is not None:
            return normalised.astype(jnp.int32)
        if unchanged and _may_be_tokens(x):
            return normalised
        return mixed_precision.lower(normalised, precision)

    return normalise


def _may_be_tokens(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize > 1


def _as_float32(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Converts a shift or scale to an array that broadcasts to an example."""
    numbers = np.asarray(value, np.float32)
    with contextlib.suppress(ValueError):
        fits = np.broadcast_shapes(numbers.shape, shape) == shape
        if fits and np.isfinite(numbers).all():
            return numbers
    raise ValueError(
        f"{name} has shape {numbers.shape}, expected finite numbers of a shape that "
        f"broadcasts to an example, {shape}"
    )
