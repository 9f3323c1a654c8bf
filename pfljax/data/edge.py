"""Values as they come from outside: refused here, or held as they are from then on."""

from typing import Annotated, Any

import numpy as np

from pfljax.registry import AT_LEAST_ONE, AT_LEAST_ZERO, Range

# A model's head and each client's histogram have a column for every class.
MOST_CLASSES = 2**20
MOST_COUNTS = 2**28  # clients times classes: 2 GiB of histogram

Seed = Annotated[int, AT_LEAST_ZERO]
Clients = Annotated[int, AT_LEAST_ONE]
ClientsOrNone = Annotated[int | None, AT_LEAST_ONE]
Classes = Annotated[
    int | None,
    AT_LEAST_ONE,
    Range(lambda value: value <= MOST_CLASSES, f"at most {MOST_CLASSES} classes"),
]


def as_array(name: str, value: Any) -> np.ndarray:
    """`value` as an array.

    Raises:
        ValueError: it has a mask, which an array has not, or rows of several lengths.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"{name} is a masked array, and its mask would be lost; leave the masked "
            "rows out, or give an array without a mask, such as x.filled(0)"
        )
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{name} is no array ({brief(error)}); expected rows of one shape"
        ) from error


def as_integers(name: str, value: Any, shape: str = "[N]") -> np.ndarray:
    """`value` as integers in one dimension; an empty one is of any type.

    Raises:
        ValueError: it is anything else.
    """
    numbers = as_array(name, value)
    if numbers.ndim == 1 and not len(numbers):
        return numbers.astype(np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ValueError(f"{name} are {told(numbers)}; expected integers {shape}")
    return numbers


def narrowed(name: str, values: np.ndarray, dtype: type) -> np.ndarray:
    """`values` in a type of 32 bits.

    Raises:
        ValueError: the largest or smallest of them lies beyond that type.
    """
    if not np.can_cast(values.dtype, dtype):
        integer = np.issubdtype(dtype, np.integer)
        limits = np.iinfo(dtype) if integer else np.finfo(dtype)
        for extreme in (values.min(), values.max()):
            if not limits.min <= extreme <= limits.max:
                raise ValueError(
                    f"{name} holds {extreme}, but is kept as {dtype.__name__}, from "
                    f"{limits.min} to {limits.max}; scale it down"
                )
    return values.astype(dtype)


def check_numbers(name: str, value: Any, row: tuple[int, ...], zero: bool) -> None:
    """Refuses a shift or scale that is not finite numbers which fit a row [...].

    Raises:
        ValueError: it is something else, or 0 where `zero` is not allowed.
    """
    numbers = as_array(name, value)
    if numbers.dtype.kind not in "iuf":
        raise ValueError(
            f"{name} is {brief(value)}; expected a number, or one a channel"
        )
    # What the model sees is float32, in which a small number may be 0.
    with np.errstate(over="ignore", under="ignore"):
        single = numbers.astype(np.float32)
    if not np.isfinite(single).all():
        raise ValueError(
            f"{name} is {brief(value)}; expected finite numbers as float32 holds them"
        )
    # Devices take what is smaller for 0.
    if not zero and (np.abs(single) < np.finfo(np.float32).tiny).any():
        raise ValueError(
            f"{name} is {brief(value)}; x is divided by it in float32: choose a number "
            "of at least 1.2e-38"
        )
    if not _fits(numbers.shape, row):
        raise ValueError(
            f"{name} has shape {list(numbers.shape)}, rows of x have {list(row)}; give "
            "a number, or one a channel"
        )


def _fits(shape: tuple[int, ...], row: tuple[int, ...]) -> bool:
    """Whether an array of this shape, with a row, has the shape of the row."""
    try:
        return np.broadcast_shapes(shape, row) == row
    except ValueError:
        return False


def told(values: np.ndarray) -> str:
    """The type and shape of an array: "float64[3, 2]"."""
    return f"{values.dtype}{list(values.shape)}"


def brief(value: Any) -> str:
    """A value or an error as part of a line."""
    text = str(value) if isinstance(value, BaseException) else repr(value)
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:117]}..."
