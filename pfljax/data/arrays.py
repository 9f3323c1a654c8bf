"""The record of a data set as arrays."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pfljax.core.factories import validate
from pfljax.core.requirements import require_a
from pfljax.data.targets import convert_target, infer_kind, strata
from pfljax.data.values import (
    Classes,
    as_array,
    brief,
    check_scaling,
    infer_type,
    to_32_bits,
)

OFFICIAL_NAMES = ("train", "test", "validation")
OWN = "given by the user"  # the source of unpublished data
OFFICIAL_TRAIN, OFFICIAL_TEST, OFFICIAL_VALIDATION = range(3)


class Grouping(NamedTuple):
    """A value for each example, such as its domain."""

    number: np.ndarray  # i32[N], index into the names
    names: tuple[str, ...]


class Arrays(NamedTuple):
    """A whole data set on the host."""

    x: np.ndarray  # [N, ...], uint8 for pixels, images [N, height, width, channels]
    y: np.ndarray  # i32[N], 0 .. num_classes - 1, or as its kind says
    client: np.ndarray | None  # i32[N], natural clients 0 .. C-1
    official: np.ndarray  # u8[N], index into OFFICIAL_NAMES
    num_classes: int  # K, the width of a model's outputs
    shift: Any  # the model sees (x - shift) / scale; a number or one a channel
    scale: Any
    name: str
    source: str  # licence and citation in one line
    class_names: tuple[str, ...]
    client_names: tuple[str, ...] = ()  # C names; () if they are the numbers 0 .. C-1
    groups: Mapping[str, Grouping] = {}  # by name, such as "domain"
    kind: str = "classes"  # of the targets, a name in `core.kinds`

    @property
    def labels(self) -> np.ndarray:
        """The labels i32[N] by which examples are dealt; `y` itself for classes."""
        return self.y if self.kind == "classes" else strata(self.kind, self.y)[0]

    @property
    def num_labels(self) -> int:
        """The number of different `labels`."""
        if self.kind == "classes":
            return self.num_classes
        return strata(self.kind, self.y)[1]


@validate
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
    groups: Mapping[str, Any] | None = None,
    task: str | None = None,
) -> Arrays:
    """Makes a data set of examples `x` [N, ...] with labels `y` i[N].

    Args:
        x: uint8 stays uint8; other integers become int32 and floats float32, in whose
            range they must lie.
        y: integers from 0; they may be stored as floats, and False and True are 0 and
            1. Other tasks have the targets that `pfljax.core.kinds` lists.
        client: the client of each example, [N] integers or texts; stored as 0 .. C-1
            in sorted order.
        official: 0 train, 1 test, 2 validation for each example; all train by default.
        num_classes: K, at most 2**20; the largest label + 1 by default, at most the
            number of examples.
        shift: models see (x - shift) / scale; 0 by default.
        scale: 255 by default for uint8, else 1. A model of tokens does not scale them.
        name: the name in reports.
        source: licence and citation in one line.
        class_names: K names; "0", "1", ... by default.
        groups: values of the examples, [N] integers or texts, by name:
            {"domain": domains}. Runs have figures of each group of clients.
        task: the kind of the targets: "classes", "multilabel", "regression", "tokens"
            or "ratings". None is "regression" for fractions, "multilabel" for columns
            of 0 and 1, "tokens" for other columns of integers, else "classes".

    Raises:
        ValueError: data are empty or masked, lengths differ, types are wrong, or a
            number is NaN, infinite or beyond 32 bits.
    """
    expected = "values of each example by name: {'domain': domains}"
    require_a("groups", groups or {}, Mapping, expected)
    x = _convert_x(as_array("x", x))
    task = task or infer_kind(as_array("y", y))
    if task == "classes":
        y = _convert_y(_column("y", y, len(x)), num_classes)
        num_classes = num_classes or int(y.max()) + 1
    else:
        y, width = convert_target(task, _rows("y", y, len(x)))
        if task == "ratings" and (x.shape[1:] != (2,) or x.dtype.kind == "f"):
            raise ValueError(
                f"x of ratings is {x.dtype}{[*x.shape]}; expected a user and an item, "
                "two columns of whole numbers"
            )
        num_classes = num_classes or width
    shift, scale = _complete_scaling(x, shift, scale)
    if class_names is None:
        class_names = tuple(map(str, range(num_classes)))
    _check_names(class_names, num_classes)
    client_names: tuple[str, ...] = ()
    if client is not None:
        client, client_names = _convert_client(client, len(x))
    return Arrays(
        x=x,
        y=y,
        client=client,
        official=_convert_official(official, len(x)),
        num_classes=int(num_classes),
        shift=shift,
        scale=scale,
        name=name,
        source=source,
        class_names=tuple(class_names),
        client_names=client_names,
        groups={
            group: _convert_group(group, values, len(x))
            for group, values in (groups or {}).items()
        },
        kind=task,
    )


def renumber(ids: Any) -> np.ndarray:
    """Maps ids [N] of any sortable type to 0, 1, ... in sorted order, i32[N]."""
    _, number = np.unique(ids, return_inverse=True)
    return number.astype(np.int32)


def _convert_x(x: np.ndarray) -> np.ndarray:
    if x.ndim < 2 or 0 in x.shape:
        raise ValueError(
            f"x has shape {list(x.shape)}; expected examples [N, ...] with N >= 1, "
            "as [N, features] or [N, height, width, channels]"
        )
    # Pixels stay bytes until a model sees them: a quarter of the memory.
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind in "iu":
        return to_32_bits("x", x, np.int32)
    if x.dtype.kind != "f":
        raise ValueError(f"x is of type {x.dtype}; expected uint8, integers or floats")
    # A NaN makes both extremes NaN, so no flags of the size of x are needed.
    if not np.isfinite([x.min(), x.max()]).all():
        finite = np.isfinite(x).reshape(len(x), -1).all(axis=1)
        raise ValueError(
            f"x holds NaN or infinity in {np.sum(~finite)} of {len(x)} examples, first "
            f"in example {np.argmin(finite)}; remove or repair them"
        )
    return to_32_bits("x", x, np.float32)


def _convert_y(y: np.ndarray, num_classes: int | None) -> np.ndarray:
    if y.dtype.kind == "b":
        y = y.astype(np.int32)
    if y.dtype.kind not in "iu":
        raise ValueError(
            f"labels are of type {y.dtype}; expected integers 0 .. K-1, none missing"
        )
    if num_classes is not None and y.max() >= num_classes:
        raise ValueError(
            f"the largest label is {y.max()}, but the number of classes is "
            f"{num_classes}; labels count from 0: give at least {y.max() + 1} classes"
        )
    # For ids, or a class that no example has, the model would have an output in vain.
    if y.min() < 0 or (num_classes is None and (y.min() > 0 or y.max() >= len(y))):
        raise ValueError(
            f"{len(y)} labels are from {y.min()} to {y.max()}; expected classes 0 .. "
            "K-1: renumber them by np.unique(y, return_inverse=True)[1], or give the "
            "number of classes, if some have no examples here"
        )
    return y.astype(np.int32)


def _convert_client(client: Any, count: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns the number of each example's client, and the names of the clients."""
    number, names = _convert_group("client", client, count)
    are_numbers = names == tuple(map(str, range(len(names))))
    return number, () if are_numbers else names


def _convert_group(group: str, values: Any, count: int) -> Grouping:
    column = _column(group, values, count)
    if column.dtype.kind not in "iuSU":
        raise ValueError(
            f"{group} ids are of type {column.dtype}; expected integers or strings, "
            "none missing"
        )
    ids, number = np.unique(column, return_inverse=True)
    return Grouping(number.astype(np.int32), tuple(map(str, ids)))


def _convert_official(official: Any, count: int) -> np.ndarray:
    if official is None:
        return np.zeros(count, np.uint8)
    official = _column("official", official, count)
    if not np.isin(official, range(len(OFFICIAL_NAMES))).all():
        raise ValueError(
            "official has values other than 0 (train), 1 (test), 2 (validation)"
        )
    return official.astype(np.uint8)


def _complete_scaling(x: np.ndarray, shift: Any, scale: Any) -> tuple[Any, Any]:
    """The shift and the scale, checked; by the type of x where they are None."""
    if shift is None:
        shift = 0.0
    if scale is None:
        scale = 255.0 if x.dtype == np.uint8 else 1.0
    check_scaling("shift", shift, x.shape[1:], zero=True)
    check_scaling("scale", scale, x.shape[1:], zero=False)
    return shift, scale


def _check_names(names: Any, num_classes: int) -> None:
    are_texts = isinstance(names, list | tuple) and all(
        isinstance(name, str) for name in names
    )
    if not are_texts or len(names) != num_classes:
        raise ValueError(
            f"class_names is {brief(names)}; expected a list of {num_classes} texts, "
            "one a class"
        )


def _rows(name: str, values: Any, count: int) -> np.ndarray:
    """Converts what each example has to an array [N, ...]."""
    rows = as_array(name, values)
    if rows.shape[:1] != (count,):
        raise ValueError(
            f"{name} has shape {list(rows.shape)}, but x has {count} examples; "
            f"expected [{count}, ...]"
        )
    return rows


def _column(name: str, values: Any, count: int) -> np.ndarray:
    """Converts one value for each example to an array [N]."""
    column = infer_type(as_array(name, values))
    if column.shape != (count,):
        raise ValueError(
            f"{name} has shape {list(column.shape)}, but x has {count} examples; "
            f"expected [{count}]"
        )
    return column
