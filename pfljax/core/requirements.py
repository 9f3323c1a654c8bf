"""Names and values that must be valid; else a ValueError says what was expected."""

import difflib
import inspect
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Value = TypeVar("Value")
LONGEST = 150  # letters of a list of names


def find(kind: str, known: Mapping[str, Value], name: str) -> Value:
    """`known[name]`, or a ValueError that lists the known names."""
    if not isinstance(name, str) or name not in known:
        raise ValueError(unknown(kind, known, name))
    return known[name]


def unknown(kind: str, known: Mapping[str, Any], name: str) -> str:
    """The message for a name that is not one of the known names."""
    if not isinstance(name, str):
        return f"{kind} {name!r} is not a name; expected a text"
    names = ", ".join(sorted(known)) or "none"
    hint = _hint(name, known)
    if len(names) > LONGEST:
        if hint:
            return f"unknown {kind} {name!r}{hint}"
        shown, _, _ = names[:LONGEST].rpartition(", ")
        rest = len(known) - len(shown.split(", "))
        names = f"{shown} and {rest} more"
    return f"unknown {kind} {name!r}; known: {names}{hint}"


def _hint(name: str, known: Iterable[str]) -> str:
    """The nearest name, as the end of a sentence; empty if none is near."""
    names = sorted(known)
    # A name that others begin with is nearer to them than to one of equal length.
    longer = [other for other in names if other.startswith(name)]
    nearest = longer or difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {' or '.join(map(repr, nearest))}?" if nearest else ""


def require(name: str, value: Any, holds: bool, expected: str) -> None:
    """Raises a ValueError with the value and what was expected, unless it `holds`."""
    if not holds:
        raise ValueError(f"{name} is {value!r}; expected {expected}")


def require_a(
    name: str, value: Any, kind: type | tuple[type, ...], expected: str
) -> None:
    """Raises a ValueError unless the value is of this type.

    `expected` also says what to do. True and False do not count as numbers.
    """
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return
    # In one line: the text of an array has several.
    text = " ".join(f"{reprlib.repr(value)}, of type {type(value).__name__}".split())
    raise ValueError(f"{name} is {text}; expected {expected}")


def require_call(
    name: str, function: Any, parameters: Sequence[str], expected: str
) -> None:
    """Raises a ValueError unless the function takes these positional arguments."""
    if not callable(function):
        require_a(name, function, (), expected)
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin, such as dict.__getitem__
        return
    try:
        signature.bind(*parameters)
    except TypeError:
        raise ValueError(f"{name} takes {signature}; expected {expected}") from None


def require_known(name: str, value: str, known: Collection[str]) -> None:
    """Raises a ValueError that lists the known values unless `value` is one of them."""
    if value not in known:
        hint = _hint(value, known) if isinstance(value, str) else ""
        raise ValueError(f"{name} is {value!r}; known: {', '.join(known)}{hint}")
