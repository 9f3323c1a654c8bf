"""Raw rows to the numbers that a model takes, inside the compiled program."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from pfljax.core.precision import EXACT
from pfljax.core.types import Array
from pfljax.models import mixed_precision


def normaliser(
    input_shape: Sequence[int], shift: Any, scale: Any, precision: str = EXACT
) -> Callable[[Array], Array]:
    """A function raw x [B, *input_shape] -> (x - shift) / scale, in this precision.

    Whole numbers of more than 8 bits, where nothing is subtracted or divided, stay f32
    in any precision: they may be tokens, of which bfloat16 has 256.

    Raises:
      ValueError: for a shift or scale that does not broadcast to a row or a scale with
        a zero; and from that function, for rows of another shape.
    """
    expected = tuple(input_shape)
    shift = _as_float32("shift", shift, expected)
    scale = _as_float32("scale", scale, expected)
    if (scale == 0).any():
        raise ValueError("scale has a zero, by which x is divided; use 1 there")
    unchanged = not shift.any() and bool((scale == 1).all())

    def normalise(x: Array) -> Array:
        if x.shape[1:] != expected:
            raise ValueError(
                f"x has shape {x.shape}, expected rows of {expected}; "
                "build the task with the input_shape of the data"
            )
        # Rows are stored as they come, often uint8: a batch is cast, never the pool.
        centred = x.astype(jnp.float32) - shift
        normalised = centred / scale
        if unchanged and _may_be_tokens(x):
            return normalised
        return mixed_precision.lower(normalised, precision)

    return normalise


def _may_be_tokens(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize > 1


def _as_float32(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The shift or scale as an array that broadcasts to an example."""
    numbers = np.asarray(value, np.float32)
    with contextlib.suppress(ValueError):
        fits = np.broadcast_shapes(numbers.shape, shape) == shape
        if fits and np.isfinite(numbers).all():
            return numbers
    raise ValueError(
        f"{name} has shape {numbers.shape}, expected finite numbers of a shape that "
        f"broadcasts to an example, {shape}"
    )
