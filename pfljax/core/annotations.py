"""Checks a value against the annotation of an option.

An annotation is a type, a union of types or a `Literal`, and may have a `Range`:

    lam: NotNegative = 0.1            loss: Literal["mean", "sum"] = "mean"
    rate: NotNegative | None = None   hidden: Sequence[int] = (200,)

`parameters` reads the annotations of a function, `alternatives` takes one apart, and
`find_expected` says what was expected instead of a wrong value.
"""

import inspect
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pfljax.core.components import Component
from pfljax.core.ranges import Range

SCALARS = (bool, int, float, str, NoneType)  # the types of options in config.json
DESCRIPTIONS = {
    NoneType: "None",
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "True or False",
    Component: "a name",
}


class Alternative(NamedTuple):
    """One type of a union, and the ranges of its values."""

    type: Any
    ranges: tuple[Range, ...]


def parameters(factory: Callable) -> dict[str, inspect.Parameter]:
    """The parameters of a function, their annotations as objects."""
    try:
        signature = inspect.signature(factory, eval_str=True)
    except Exception:  # annotations that are texts may name anything
        signature = inspect.signature(factory)
    return dict(signature.parameters)


def alternatives(
    annotation: Any, ranges: tuple[Range, ...] = ()
) -> tuple[Alternative, ...]:
    """The types of an annotation; `ranges` are those of an annotation around it."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        own = tuple(note for note in notes if isinstance(note, Range))
        return alternatives(inner, ranges + own)
    if get_origin(annotation) in (Union, UnionType):
        parts = [alternatives(part, ranges) for part in get_args(annotation)]
        return sum(parts, ())
    return (Alternative(annotation, () if annotation is NoneType else ranges),)


def is_float(annotation: Any) -> bool:
    """Whether the annotation has floats and no ints."""
    types = [alternative.type for alternative in alternatives(annotation)]
    return float in types and int not in types


def find_expected(value: Any, annotation: Any) -> str | None:
    """The expectation of an annotation that the value misses; None if it is right."""
    expected = None
    for kind, ranges in alternatives(annotation):
        # The ranges of another type in a union do not apply.
        if _is_a(value, kind):
            broken = [limits for limits in ranges if not limits.takes(value)]
            if not broken:
                return None
            expected = broken[0].expected
    return expected or _describe(annotation)


def _is_a(value: Any, kind: Any) -> bool:
    """Whether the value is of this type, which is no union."""
    origin = get_origin(kind)
    if origin is Literal:
        # By type as well: True equals 1.
        return (type(value), value) in [(type(c), c) for c in get_args(kind)]
    if origin is Sequence:
        return isinstance(value, tuple | list) and all(map(_is_width, value))
    if origin is tuple:
        item = get_args(kind)[0]
        return isinstance(value, tuple) and all(_is_a(part, item) for part in value)
    if origin is Callable:
        return callable(value)
    # An option without a type takes any value.
    if kind in (Any, inspect.Parameter.empty) or not isinstance(kind, type):
        return True
    # Python's bool is an int, but True is not a number of clients.
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)


def _is_width(value: Any) -> bool:
    """Whether the value is a positive whole number, such as the width of a layer."""
    return type(value) is int and 0 < value < 2**31


def _describe(annotation: Any) -> str:
    """The types in words: "a number", "a whole number or None", "'mean' or 'sum'"."""
    types = [alternative.type for alternative in alternatives(annotation)]
    if float in types:
        types = [kind for kind in types if kind is not int]
    return " or ".join(map(_describe_type, types))


def _describe_type(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if origin is Sequence:
        return "positive whole numbers in parentheses"
    if origin is tuple:
        item = _describe_type(get_args(kind)[0])
        return f"{item}, or several with spaces between them"
    if origin is Callable:
        return "a function"
    return DESCRIPTIONS.get(kind, getattr(kind, "__name__", str(kind)))
