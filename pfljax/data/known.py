"""Look-ups by name whose errors list the known names."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")


def find(table: Mapping[str, Value], name: str, kind: str) -> Value:
    """table[name], or a ValueError that lists the known names."""
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(sorted(table))}")
    return table[name]


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Keyword-only parameters of `function` with their defaults."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def check_params(
    function: Callable[..., Any], params: Mapping[str, Any], what: str
) -> None:
    """ValueError for an unknown parameter, listing the known, or a missing one."""
    known = parameters(function)
    unknown = sorted(set(params) - set(known))
    if unknown:
        names = ", ".join(sorted(known)) or "none"
        raise ValueError(f"unknown parameter {unknown[0]!r} of {what}; known: {names}")
    needed = {name for name, value in known.items() if value is inspect.Parameter.empty}
    if missing := sorted(needed - set(params)):
        raise ValueError(f"{what} needs the parameter {missing[0]!r}")
