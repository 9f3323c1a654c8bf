"""What is chosen by name is made by a factory: its options, and their checks."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from pfljax.registry import annotations
from pfljax.registry.choices import Choice
from pfljax.registry.names import require, unknown

Built = TypeVar("Built")
Arguments = ParamSpec("Arguments")
# Keywords that a run fills in, not the user: its number of rounds, the training rows
# of its largest client, the rows of its server, its number of clients, and the setting
# of the server's optimizer.
FILLED_IN = ("rounds", "most_rows", "public_rows", "num_clients", "server_optimizer")


def options(factory: Callable) -> dict[str, inspect.Parameter]:
    """The keyword options of a factory that a user may set."""
    return {
        name: parameter
        for name, parameter in annotations.parameters(factory).items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in FILLED_IN
    }


def defaults(factory: Callable) -> dict[str, Any]:
    """The options that can be written in a config, with their defaults."""
    return {
        name: parameter.default
        for name, parameter in options(factory).items()
        if isinstance(parameter.default, annotations.SCALARS)
    }


def given(factory: Callable, **context: Any) -> dict[str, Any]:
    """What of `context` the factory asks for."""
    asked = inspect.signature(factory).parameters
    return {name: value for name, value in context.items() if name in asked}


def in_floats(choice: Choice, factory: Callable) -> Choice:
    """The choice with its whole numbers as floats where the factory takes floats.

    "clip:norm=1" and "clip:norm=1.0" are one run, so they must have one digest.
    """
    known = annotations.parameters(factory)  # those of optax are positional, too
    pairs = []
    for name, value in choice.args:
        if (
            type(value) is int
            and name in known
            and annotations.wants_float(known[name])
        ):
            value = float(value)
        pairs.append((name, value))
    return Choice(choice.name, tuple(pairs))


def checked(factory: Callable[Arguments, Built]) -> Callable[Arguments, Built]:
    """The factory, which refuses arguments that its annotations do not allow.

    It stands above every factory, for that may be called directly. A config, a command
    line and a sweep are checked by `check` before, which knows the kind of the choice
    and needs no decorator: a user's own factory may lack it.
    """
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def build(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Built:
        arguments = signature.bind(*args, **kwargs).arguments
        check_values(build.__name__, factory, arguments)
        return factory(*args, **kwargs)

    return build


def check(
    kind: str, choice: Choice, factory: Callable, also: Collection[str] = ()
) -> None:
    """Raises a ValueError if `factory` lacks or needs a parameter, or its value.

    A value has to be of the parameter's annotated type, and in its `Range`. `also` are
    parameters that every choice of this kind takes, whatever makes it.
    """
    known = options(factory)
    owner = f"{kind} {choice.name!r}"
    check_names(owner, {*known, *also}, choice.kwargs)
    check_values(owner, factory, choice.kwargs)
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in choice.kwargs:
            raise ValueError(f"{owner} needs the parameter {key!r}")


def check_names(owner: str, known: Collection[str], given: Iterable[str]) -> None:
    """Raises a ValueError for a parameter that is none of the known."""
    for name in given:
        if name not in known:
            listed = dict.fromkeys(known)
            raise ValueError(f"{owner}: {unknown('parameter', listed, name)}")


def check_values(owner: str, factory: Callable, values: Mapping[str, Any]) -> None:
    """Raises a ValueError for an option, or an argument with a range, that is wrong."""
    known = options(factory)
    for name, parameter in annotations.parameters(factory).items():
        asked = name in known or annotations.ranges(parameter.annotation)
        if name in values and asked:
            check_value(f"{owner}: {name}", values[name], parameter)


def check_value(name: str, value: Any, parameter: inspect.Parameter) -> None:
    """Raises a ValueError unless the value is of the type and in the range."""
    if getattr(value, "shape", None) == ():
        try:
            value = value.item()
        except TypeError:
            # A tracer of JAX has no value yet. A sweep, which passes it, has checked
            # every point before.
            return
    require(name, value, _fits(value, parameter), _expected(parameter))
    broken = annotations.broken_range(value, parameter.annotation)
    if broken is not None:
        require(name, value, False, broken.expected)


def _fits(value: Any, parameter: inspect.Parameter) -> bool:
    """Whether the value is of the parameter's annotated type."""
    # A function as default (an activation) wants a function; empty is a class.
    if callable(parameter.default) and parameter.default is not parameter.empty:
        return callable(value)
    return annotations.fits(value, parameter.annotation)


def _expected(parameter: inspect.Parameter) -> str:
    kind = annotations.described(parameter.annotation)
    if parameter.default in (None, parameter.empty):
        return kind
    return f"{kind}, such as {parameter.default!r}"
