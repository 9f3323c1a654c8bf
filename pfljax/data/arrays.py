"""The record of a data set as arrays, checked at the edge."""

from typing import Any, NamedTuple

import numpy as np

from pfljax.data.edge import Classes, as_array, brief, check_numbers, narrowed
from pfljax.registry import checked

OFFICIAL_NAMES = ("train", "test", "validation")
OWN = "given by the user"  # the source of rows that no published data set names
OFFICIAL_TRAIN, OFFICIAL_TEST, OFFICIAL_VALIDATION = range(3)


class Arrays(NamedTuple):
    """A whole data set on the host."""

    x: np.ndarray  # [N, ...], uint8 for pixels, images [N, height, width, channels]
    y: np.ndarray  # i32[N], 0 .. num_classes - 1
    client: np.ndarray | None  # i32[N], natural clients 0 .. C-1
    official: np.ndarray  # u8[N], index into OFFICIAL_NAMES
    num_classes: int
    shift: Any  # the model sees (x - shift) / scale; a number or one a channel
    scale: Any
    name: str
    source: str  # licence and citation in one line
    class_names: tuple[str, ...]


@checked
def from_arrays(
    x: Any,
    y: Any,
    *,
    client: Any = None,
    official: Any = None,
    num_classes: Classes = None,
    shift: Any = None,
    scale: Any = None,
    name: str = "arrays",
    source: str = OWN,
    class_names: Any = None,
) -> Arrays:
    """The data set of rows `x` [N, ...] with labels `y` i[N].

    Args:
        x: uint8 stays uint8; other integers become int32, floats float32, and must
            lie in their range.
        y: integers from 0.
        client: whom each row belongs to, [N] of any sortable type; kept as 0 .. C-1 in
            sorted order.
        official: 0 train, 1 test, 2 validation for each row; all train by default.
        num_classes: K, at most 2**20; the largest label + 1 by default, at most the
            number of rows.
        shift: (x - shift) / scale is what models see; 0 by default.
        scale: 255 by default for uint8, else 1.
        name: what reports call it.
        source: licence and citation in one line.
        class_names: K names; "0", "1", ... by default.

    Raises:
        ValueError: for empty or masked data, unequal lengths, wrong types, NaN,
            infinity, and numbers beyond 32 bits.
    """
    x = _checked_x(as_array("x", x))
    y = as_array("y", y)
    _check_length("y", y, len(x))
    y = _checked_y(y, num_classes)
    if num_classes is None:
        num_classes = int(y.max()) + 1
    if shift is None:
        shift = 0.0
    if scale is None:
        scale = 255.0 if x.dtype == np.uint8 else 1.0
    row = x.shape[1:]
    check_numbers("shift", shift, row, zero=True)
    check_numbers("scale", scale, row, zero=False)
    return Arrays(
        x=x,
        y=y,
        client=_checked_client(client, len(x)),
        official=_checked_official(official, len(x)),
        num_classes=int(num_classes),
        shift=shift,
        scale=scale,
        name=name,
        source=source,
        class_names=_checked_names(class_names, int(num_classes)),
    )


def renumbered(ids: Any) -> np.ndarray:
    """i32[N]: ids of any sortable type [N] as 0, 1, ... in sorted order."""
    _, number = np.unique(ids, return_inverse=True)
    return number.astype(np.int32)


def _checked_x(x: np.ndarray) -> np.ndarray:
    if x.ndim < 2 or 0 in x.shape:
        raise ValueError(
            f"x has shape {list(x.shape)}; expected rows [N, ...] with N >= 1, "
            "as [N, features] or [N, height, width, channels]"
        )
    # Pixels stay bytes until a model sees them: a quarter of the memory.
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind in "iu":
        return narrowed("x", x, np.int32)
    if x.dtype.kind != "f":
        raise ValueError(f"x is of type {x.dtype}; expected uint8, integers or floats")
    finite = np.isfinite(x).reshape(len(x), -1)
    bad = np.flatnonzero(~finite.all(axis=1))
    if len(bad):
        raise ValueError(
            f"x holds NaN or infinity in {len(bad)} of {len(x)} rows, first in row "
            f"{bad[0]}; remove or repair these rows"
        )
    return narrowed("x", x, np.float32)


def _checked_y(y: np.ndarray, num_classes: int | None) -> np.ndarray:
    if y.dtype.kind not in "iu":
        raise ValueError(f"labels are of type {y.dtype}; expected integers 0 .. K-1")
    if y.min() < 0:
        raise ValueError(f"the smallest label is {y.min()}; labels start at 0")
    if num_classes is not None and y.max() >= num_classes:
        raise ValueError(
            f"the largest label is {y.max()}, but num_classes is {num_classes}; "
            f"choose num_classes >= {y.max() + 1}"
        )
    # Ids taken for classes would make a model of as many logits.
    if num_classes is None and y.max() >= len(y):
        raise ValueError(
            f"the largest label is {y.max()}, but there are {len(y)} rows: labels are "
            "classes 0 .. K-1, not ids; renumber them by np.unique(y, "
            "return_inverse=True)[1], or give num_classes"
        )
    return y.astype(np.int32)


def _checked_client(client: Any, rows: int) -> np.ndarray | None:
    if client is None:
        return None
    client = as_array("client", client)
    _check_length("client", client, rows)
    if client.dtype.kind not in "iuSU":
        raise ValueError(
            f"client ids are of type {client.dtype}; expected integers or strings"
        )
    return renumbered(client)


def _checked_official(official: Any, rows: int) -> np.ndarray:
    if official is None:
        return np.zeros(rows, np.uint8)
    official = as_array("official", official)
    _check_length("official", official, rows)
    if not np.isin(official, range(len(OFFICIAL_NAMES))).all():
        raise ValueError(
            "official has values other than 0 (train), 1 (test), 2 (validation)"
        )
    return official.astype(np.uint8)


def _checked_names(names: Any, num_classes: int) -> tuple[str, ...]:
    if names is None:
        return tuple(map(str, range(num_classes)))
    are_texts = isinstance(names, list | tuple) and all(
        isinstance(name, str) for name in names
    )
    if not are_texts:
        raise ValueError(
            f"class_names is {brief(names)}; expected a list of {num_classes} texts"
        )
    if len(names) != num_classes:
        raise ValueError(
            f"{len(names)} class_names for {num_classes} classes; give one a class"
        )
    return tuple(names)


def _check_length(name: str, values: np.ndarray, rows: int) -> None:
    if values.shape != (rows,):
        raise ValueError(
            f"{name} has shape {list(values.shape)}, but x has {rows} rows; "
            f"expected [{rows}]"
        )
