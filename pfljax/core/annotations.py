"""The type and the `Range` of an option, read from its annotation.

lam: NotNegative = 0.1            loss: Literal["mean", "sum"] = "mean"
rate: NotNegative | None = None   word: str | None = None
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

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


def parameters(factory: Callable) -> dict[str, inspect.Parameter]:
    """The parameters of a function, their annotations as objects."""
    try:
        signature = inspect.signature(factory, eval_str=True)
    except Exception:  # annotations that are texts may name anything
        signature = inspect.signature(factory)
    return dict(signature.parameters)


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type, without `Annotated`."""
    return tuple(alternative for alternative, _ in _flatten(kind))


def ranges(kind: Any) -> list[Range]:
    """All ranges in an annotation."""
    return [limits for _, several in _flatten(kind) for limits in several]


def fits(value: Any, kind: Any) -> bool:
    """Whether the value is of this type, whatever its range."""
    return any(_is_a(value, alternative) for alternative in alternatives(kind))


def broken_range(value: Any, kind: Any) -> Range | None:
    """The range that a value of this type is out of; None if it is in all of them."""
    if value is None:
        return None
    broken = None
    for alternative, several in _flatten(kind):
        # The ranges of another type in a union do not apply.
        if not _is_a(value, alternative):
            continue
        failing = [limits for limits in several if not limits.takes(value)]
        if not failing:
            return None
        broken = failing[0]
    return broken


def describe(kind: Any) -> str:
    """The type in words: "a number", "a whole number or None", "'mean' or 'sum'"."""
    kinds = alternatives(kind)
    if float in kinds:
        kinds = tuple(kind for kind in kinds if kind is not int)
    return " or ".join(map(_describe, kinds))


def is_float(kind: Any) -> bool:
    """Whether the type has floats and no ints."""
    kinds = alternatives(kind)
    return float in kinds and int not in kinds


def _flatten(
    kind: Any, several: tuple[Range, ...] = ()
) -> Iterator[tuple[Any, tuple[Range, ...]]]:
    """(type, ranges) of each alternative of an annotation."""
    if get_origin(kind) is Annotated:
        kind, *notes = get_args(kind)
        several += tuple(note for note in notes if isinstance(note, Range))
        yield from _flatten(kind, several)
    elif get_origin(kind) in (Union, UnionType):
        for part in get_args(kind):
            yield from _flatten(part, several)
    else:
        yield kind, several


def _is_a(value: Any, kind: Any) -> bool:
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


def _describe(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if origin is Sequence:
        return "positive whole numbers in parentheses"
    if origin is tuple:
        item = _describe(get_args(kind)[0])
        return f"{item}, or several with spaces between them"
    if origin is Callable:
        return "a function"
    return DESCRIPTIONS.get(kind, getattr(kind, "__name__", str(kind)))
