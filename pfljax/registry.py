"""Names to things: algorithms, models, data sets, partitions; and `Choice`, name and
args.

A choice is written "shards:per_client=2" on the command line and in config.json.
"""

import ast
import difflib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, get_origin

Value = TypeVar("Value")
FILLED_IN = ("rounds",)  # keywords that the experiment fills in, not the user
COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")


class Range(NamedTuple):
    """Which numbers an option takes, as part of its annotation.

    It stands there and not in the factory, for a sweep calls factories with traced
    numbers, which cannot be compared. `check` looks at every point of it before.
    """

    holds: Callable[[Any], bool]
    expected: str


INFINITY = float("inf")
NotNegative = Annotated[
    float, Range(lambda value: 0 <= value < INFINITY, "a finite number >= 0")
]
Positive = Annotated[
    float, Range(lambda value: 0 < value < INFINITY, "a finite number > 0")
]
Share = Annotated[float, Range(lambda value: 0 <= value <= 1, "a number from 0 to 1")]
Count = Annotated[int, Range(lambda value: value >= 0, "at least 0")]
AtLeastOne = Annotated[int, Range(lambda value: value >= 1, "at least 1")]
Epochs = Annotated[  # None for those of the local training
    int | None, Range(lambda value: value is None or value >= 0, "at least 0, or None")
]


class Choice(NamedTuple):
    """A registered name with its arguments, sorted by name."""

    name: str
    args: tuple[tuple[str, Any], ...] = ()

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments as a dict."""
        return dict(self.args)

    def __str__(self) -> str:
        pairs = ",".join(f"{key}={value}" for key, value in self.args)
        return f"{self.name}:{pairs}" if pairs else self.name


def choose(name: str, **kwargs: Any) -> Choice:
    """A choice in Python: `choose("shards", per_client=2)`."""
    return Choice(name, tuple(sorted(kwargs.items())))


def parse(text: str) -> Choice:
    """The choice written as "name" or "name:key=value,key=(value,value)"."""
    name, _, pairs = text.partition(":")
    if not name.strip():
        raise ValueError(f"{text!r} has no name; expected name or name:key=value")
    kwargs = {}
    for pair in filter(None, COMMA_OUTSIDE_PARENTHESES.split(pairs)):
        key, _, value = map(str.strip, pair.partition("="))
        if not key or not value:
            raise ValueError(f"{text!r} is not of the form name:key=value,key=value")
        kwargs[key] = literal(value)
    return choose(name.strip(), **kwargs)


def literal(text: str) -> Any:
    """The Python number, bool or None written in `text`, else the text itself."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return tuple(value) if isinstance(value, list) else value  # for choices are hashed


def find(kind: str, known: Mapping[str, Value], name: str) -> Value:
    """`known[name]`, or a ValueError that lists the known names."""
    if name not in known:
        raise ValueError(_unknown(kind, known, name))
    return known[name]


def _unknown(kind: str, known: Mapping[str, Any], name: str) -> str:
    # A name that others begin with is nearer to them than to one of equal length.
    near = sorted(other for other in known if other.startswith(name))
    if not near:
        near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    names = ", ".join(sorted(known)) or "none"
    return f"unknown {kind} {name!r}; known: {names}{hint}"


def options(factory: Callable) -> dict[str, inspect.Parameter]:
    """The keyword options of a factory that a user may set."""
    return {
        name: parameter
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in FILLED_IN
    }


def defaults(factory: Callable) -> dict[str, Any]:
    """The options that can be written in a config, with their defaults."""
    plain = bool | int | float | str | None
    return {
        name: parameter.default
        for name, parameter in options(factory).items()
        if isinstance(parameter.default, plain)
    }


def given(factory: Callable, **context: Any) -> dict[str, Any]:
    """What of `context` the factory asks for."""
    asked = inspect.signature(factory).parameters
    return {name: value for name, value in context.items() if name in asked}


def require(name: str, value: Any, holds: bool, expected: str) -> None:
    """Raises a ValueError unless it `holds`: what came, and what was expected."""
    if not holds:
        raise ValueError(f"{name} is {value!r}; expected {expected}")


def check(kind: str, choice: Choice, factory: Callable) -> None:
    """Raises a ValueError if `factory` lacks or needs a parameter, or its value.

    A value has to be of the parameter's annotated type, and in its `Range`.
    """
    known = options(factory)
    for key, value in choice.args:
        if key not in known:
            unknown = _unknown("parameter", known, key)
            raise ValueError(f"{kind} {choice.name!r}: {unknown}")
        if not _fits(value, known[key]):
            raise ValueError(
                f"{kind} {choice.name!r}: {key} is {value!r}; expected "
                f"{_expected(known[key])}"
            )
        for limits in _ranges(known[key]):
            require(key, value, limits.holds(value), limits.expected)
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in choice.kwargs:
            raise ValueError(f"{kind} {choice.name!r} needs the parameter {key!r}")


def _ranges(parameter: inspect.Parameter) -> list[Range]:
    """The ranges in the parameter's annotation: one, or none."""
    notes = getattr(parameter.annotation, "__metadata__", ())
    return [note for note in notes if isinstance(note, Range)]


def _type_of(parameter: inspect.Parameter) -> Any:
    """The parameter's annotation without its range."""
    kind = parameter.annotation
    return kind.__origin__ if get_origin(kind) is Annotated else kind


def _fits(value: Any, parameter: inspect.Parameter) -> bool:
    """Whether the value is of the parameter's annotated type, where that is plain."""
    kind = _type_of(parameter)
    if get_origin(kind) is Sequence:
        return _are_widths(value)
    # A function as default (an activation) wants a function; empty is a class.
    if callable(parameter.default) and parameter.default is not parameter.empty:
        return callable(value)
    # An option that says no type takes any value.
    if kind in (Any, parameter.empty) or not isinstance(kind, type | UnionType):
        return True
    # Python's bool is an int, but True is no number of clients.
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, kind)


def _are_widths(value: Any) -> bool:
    """Whether the value is a sequence of positive whole numbers."""
    if not isinstance(value, tuple | list):
        return False
    return all(type(width) is int and width > 0 for width in value)


def _expected(parameter: inspect.Parameter) -> str:
    kind = _type_of(parameter)
    if get_origin(kind) is Sequence:
        name = "positive whole numbers in parentheses"
    else:
        name = kind.__name__ if isinstance(kind, type) else str(kind)
    if parameter.default in (None, parameter.empty):
        return name
    return f"{name}, such as {parameter.default!r}"
