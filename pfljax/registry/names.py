"""Names among those that are known, and values as they must be; else a ValueError."""

import difflib
import inspect
import re
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Value = TypeVar("Value")
LONG = 250  # letters of a list that is shortened
NUMBER = r"\d+|(?<=_)[a-z]$"  # in a series of names


def find(kind: str, known: Mapping[str, Value], name: str) -> Value:
    """`known[name]`, or a ValueError that lists the known names."""
    if not isinstance(name, str) or name not in known:
        raise ValueError(unknown(kind, known, name))
    return known[name]


def near(name: str, known: Iterable[str]) -> list[str]:
    """The known names that one which is none of them may have meant."""
    names = sorted(known)
    # A name that others begin with is nearer to them than to one of equal length.
    longer = [other for other in names if other.startswith(name)]
    return longer or difflib.get_close_matches(name, names, n=1)


def unknown(kind: str, known: Mapping[str, Any], name: str) -> str:
    """What is wrong with a name that is none of the known."""
    if not isinstance(name, str):
        return f"{kind} {name!r} is no name; expected a text"
    hint = _hint(name, known)
    names = ", ".join(sorted(known)) or "none"
    if len(names) > LONG:
        names = _in_short(_in_series(known))
    return f"unknown {kind} {name!r}; known: {names}{hint}"


def _hint(name: str, known: Iterable[str]) -> str:
    """What may have been meant, as the end of a sentence; empty if nothing is near."""
    nearest = near(name, known)
    return f"; did you mean {' or '.join(map(repr, nearest))}?" if nearest else ""


def _in_short(names: Sequence[str]) -> str:
    """The first of the names, and how many others there are."""
    text = ", ".join(names)
    if len(text) <= LONG:
        return text
    begin, _, _ = text[:LONG].rpartition(", ")
    rest = len(names) - len(begin.split(", "))
    return f"{begin} and {rest} more (see `pfljax list --help`)"


def _in_series(names: Iterable[str]) -> list[str]:
    """The names, sorted; those of a series of three or more together.

    Such as "cnn1 .. cnn5", "cnn_a .. cnn_e", and "cnn2/4/8" where some are not there.
    """
    series: dict[str, list[str]] = {}
    for name in sorted(names):
        series.setdefault(re.sub(NUMBER, "#", name), []).append(name)
    listed = []
    for members in series.values():
        if len(members) < 3:
            listed += members
            continue
        members.sort(key=_numbers)
        first, *others = map(_numbers, members)
        if others == [[*first[:-1], first[-1] + n] for n in range(1, len(members))]:
            listed.append(f"{members[0]} .. {members[-1]}")
            continue
        begin = next(re.finditer(NUMBER, members[0])).start()
        listed.append("/".join([members[0], *(name[begin:] for name in members[1:])]))
    return listed


def _numbers(name: str) -> list[int]:
    """The numbers in a name, or that of its last letter."""
    words = re.findall(NUMBER, name)
    return [int(word) if word.isdigit() else ord(word) for word in words]


def require(name: str, value: Any, holds: bool, expected: str) -> None:
    """Raises a ValueError unless it `holds`: what came, and what was expected."""
    if not holds:
        raise ValueError(f"{name} is {value!r}; expected {expected}")


def require_a(
    name: str, value: Any, kind: type | tuple[type, ...], expected: str
) -> None:
    """Raises a ValueError unless the value is of this kind: what came, and of which.

    `expected` also says what to do. True and False are no numbers.
    """
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return
    # In one line: the text of an array has several.
    came = " ".join(f"{reprlib.repr(value)}, of type {type(value).__name__}".split())
    raise ValueError(f"{name} is {came}; expected {expected}")


def require_call(
    name: str, function: Any, parameters: Sequence[str], expected: str
) -> None:
    """Raises a ValueError unless it can be called with these, by their places."""
    if not callable(function):
        require_a(name, function, (), expected)
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # of a builtin, which has none to look at
    try:
        signature.bind(*parameters)
    except TypeError:
        raise ValueError(f"{name} takes {signature}; expected {expected}") from None


def require_known(name: str, value: str, known: Collection[str]) -> None:
    """Raises a ValueError that lists the known values unless `value` is one of them."""
    if value not in known:
        hint = _hint(value, known) if isinstance(value, str) else ""
        raise ValueError(f"{name} is {value!r}; known: {', '.join(known)}{hint}")
