"""Values that users give: their types are checked and converted, as the data enter."""

import contextlib
from typing import Annotated, Any

import numpy as np

from pfljax.core.ranges import AT_LEAST_ONE, AT_LEAST_ZERO, Range

# A model's head and each client's histogram have a column for every class.
MOST_CLASSES = 2**20
MOST_COUNTS = 2**28  # clients times classes: 2 GiB of histogram

Seed = Annotated[int, AT_LEAST_ZERO]
Clients = Annotated[int, AT_LEAST_ONE]
ClientsOrNone = Annotated[int | None, AT_LEAST_ONE]
Fraction = Annotated[
    float, Range(lambda value: 0 <= value < 1, "a fraction in [0, 1)", on_host=True)
]
Classes = Annotated[
    int | None,
    AT_LEAST_ONE,
    Range(lambda value: value <= MOST_CLASSES, f"at most {MOST_CLASSES} classes"),
]


def as_array(name: str, value: Any) -> np.ndarray:
    """Converts `value` to an array.

    Raises:
        ValueError: it has a mask, or its parts differ in length.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"{name} is a masked array, and its mask would be lost; give an array "
            "without a mask, such as x.filled(0)"
        )
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{name} is no array ({brief(error)}); expected examples of one shape"
        ) from error


def as_integers(name: str, value: Any, shape: str = "[N]") -> np.ndarray:
    """Converts `value` to integers in one dimension; an empty list has any type.

    Raises:
        ValueError: it is anything else.
    """
    numbers = as_array(name, value)
    if numbers.ndim == 1 and not len(numbers):
        return numbers.astype(np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ValueError(f"{name} are {type_text(numbers)}; expected integers {shape}")
    return numbers


def infer_type(values: np.ndarray) -> np.ndarray:
    """Converts objects that are all texts or all numbers, and whole floats.

    pandas gives texts as objects, and JSON may hold labels as 5.0. Other arrays stay.
    """
    if values.dtype.kind in "OT":
        for kind in (str, (int, float, np.integer, np.floating)):
            if all(isinstance(value, kind) for value in values.flat):
                values = np.array(values.tolist())
    if values.dtype.kind == "f" and (np.abs(values.astype(np.float64)) < 2**53).all():
        whole = values.astype(np.int64)
        return whole if (whole == values).all() else values
    return values


def to_32_bits(name: str, values: np.ndarray, dtype: type) -> np.ndarray:
    """Converts `values` to a type of 32 bits.

    Raises:
        ValueError: a value lies beyond that type.
    """
    if not np.can_cast(values.dtype, dtype):
        integer = np.issubdtype(dtype, np.integer)
        limits = np.iinfo(dtype) if integer else np.finfo(dtype)
        for extreme in (values.min(), values.max()):
            if not limits.min <= extreme <= limits.max:
                raise ValueError(
                    f"{name} holds {extreme}, but is stored as {dtype.__name__}, from "
                    f"{limits.min} to {limits.max}; scale it down"
                )
    return values.astype(dtype, copy=False)


def check_scaling(name: str, value: Any, shape: tuple[int, ...], zero: bool) -> None:
    """Checks a shift or a scale: finite numbers that broadcast to an example.

    Raises:
        ValueError: it is something else, or 0 where `zero` is not allowed.
    """
    numbers = as_array(name, value)
    if numbers.dtype.kind not in "iuf":
        raise ValueError(
            f"{name} is {brief(value)}; expected a number, or one a channel"
        )
    # The model computes in float32, in which a small number may be 0.
    with np.errstate(over="ignore", under="ignore"):
        single = numbers.astype(np.float32)
    if not np.isfinite(single).all():
        raise ValueError(f"{name} is {brief(value)}; expected finite float32 numbers")
    # Devices take smaller numbers for 0.
    if not zero and (np.abs(single) < np.finfo(np.float32).tiny).any():
        raise ValueError(
            f"{name} is {brief(value)}; x is divided by it in float32: choose a number "
            "of at least 1.2e-38"
        )
    with contextlib.suppress(ValueError):
        if np.broadcast_shapes(numbers.shape, shape) == shape:
            return
    raise ValueError(
        f"{name} has shape {list(numbers.shape)}, an example of x has {list(shape)}; "
        "give a number, or one a channel"
    )


def type_text(values: np.ndarray) -> str:
    """Returns the type and shape of an array: "float64[3, 2]"."""
    return f"{values.dtype}{list(values.shape)}"


def brief(value: Any) -> str:
    """Returns a value or an error as part of a line."""
    text = repr(value)
    if isinstance(value, BaseException):
        text = f"{type(value).__name__}: {value}"
    if isinstance(value, ValueError):
        text = str(value)
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:197]}..."
