"""Factories of components: their options, and the checks of these.

A factory is a function, such as `ditto(task, local, *, lam=0.1)`. Its keyword-only
parameters are options, which a user sets by "ditto:lam=1.0" or `ditto(lam=1.0)`; a run
fills in the others.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from pfljax.core import annotations, own, requirements
from pfljax.core.components import Component, is_own, name_of
from pfljax.core.requirements import unknown

A = TypeVar("A")
B = TypeVar("B")
Built = TypeVar("Built")
Out = TypeVar("Out", covariant=True)
Arguments = ParamSpec("Arguments")
Options = ParamSpec("Options")
# Keywords that a run fills in, not the user: the number of rounds, of training examples
# of the largest client and of each client, of examples of the server and of clients,
# and the setting of the server's optimizer.
FILLED_IN = (
    "rounds",
    "max_examples",
    "sizes",
    "num_public",
    "num_clients",
    "server_optimizer",
)
# The positional arguments of the factories of a kind; others have options alone.
TAKES = {
    "algorithm": ("task", "local"),
    **dict.fromkeys(("model", "models", "proxy", "noise"), ("num_classes",)),
    "partition": ("labels", "num_clients", "seed"),
    "selection": ("cohort",),
    "profile": ("num_clients",),
    "mode": ("cohort",),
    "optimizer": ("learning_rate",),
    "loss": ("outputs", "y"),
    "metrics": ("outputs", "y", "mask"),
    "augment": ("x", "key"),
}
MADE_BY = {  # how users make what a factory of a kind returns
    "data set": ", which from_arrays(x, y) makes",
    "partition": ", which data.from_indices(lists) makes",
}
# What a selection takes by name beside these and `FILLED_IN`.
FACTS = "seconds", "epochs", "task", "least_label", "greatest_label", "label_count"


def get(kind: str, known: Mapping[str, Callable], name: str) -> Callable | None:
    """The factory of a name, known or one's own; None if it is unknown.

    Raises:
      ValueError: it is one's own, and cannot be found or called as its kind is.
    """
    if not is_own(name):
        return known.get(name)
    also = FACTS if kind == "selection" else ()
    return own.load(name, TAKES.get(kind, ()), (*FILLED_IN, *also))


def find(kind: str, known: Mapping[str, Callable], name: str) -> Callable:
    """The factory of a name, as `get`; a ValueError lists the known names."""
    return get(kind, known, name) or requirements.find(kind, known, name)


def build(
    kind: str,
    known: Mapping[str, Callable],
    choice: Component,
    *args: Any,
    returns: type = object,
    **context: Any,
) -> Any:
    """What the factory of a choice makes of these arguments and its options.

    Raises:
      ValueError: the name or an option is unknown or wrong, or one's own factory
        returns another type than `returns`.
    """
    factory = find(kind, known, choice.name)
    check(kind, choice, factory)
    built = factory(*args, **context, **choice.options)
    if isinstance(built, Component):  # of a factory that has options alone
        built = built()
    if is_own(choice.name):
        expected = f"{returns.__module__}.{returns.__name__}"
        expected += MADE_BY.get(kind, "")
        requirements.require_a(f"what {choice.name} returns", built, returns, expected)
    return built


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


def select_context(factory: Callable, **context: Any) -> dict[str, Any]:
    """Returns the entries of `context` that the factory takes as arguments."""
    asked = inspect.signature(factory).parameters
    return {name: value for name, value in context.items() if name in asked}


def convert_to_floats(choice: Component, factory: Callable) -> Component:
    """The choice with its whole numbers as floats where the factory takes floats.

    "clip:norm=1" and "clip:norm=1.0" are one run, so they must have one digest.
    """
    floats = {}
    # All parameters: the options of optax are positional, too.
    for name, parameter in annotations.parameters(factory).items():
        value = choice.options.get(name)
        takes_float = annotations.is_float(parameter.annotation)
        if type(value) is int and (takes_float or type(parameter.default) is float):
            floats[name] = float(value)
    return Component(choice.name, choice.options | floats)


def validate(factory: Callable[Arguments, Built]) -> Callable[Arguments, Built]:
    """The factory, which refuses arguments that its annotations do not allow."""
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def build(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Built:
        arguments = signature.bind(*args, **kwargs).arguments
        check_values(build.__name__, factory, arguments)
        return factory(*args, **kwargs)

    return build


class Factory(Protocol[Options, Arguments, Out]):
    """A factory: with its options alone it makes a component, else what it builds."""

    @overload
    def __call__(self, *args: Options.args, **kwargs: Options.kwargs) -> Component: ...
    @overload
    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Out: ...


@overload
def component(
    factory: Callable[Concatenate[A, B, Options], Built],
) -> Factory[Options, Concatenate[A, B, Options], Built]: ...
@overload
def component(
    factory: Callable[Concatenate[A, Options], Built],
) -> Factory[Options, Concatenate[A, Options], Built]: ...
@overload
def component(factory: Callable[Options, Any]) -> Callable[Options, Component]: ...
def component(factory: Any) -> Any:
    """The factory, which with its options alone makes a `Component`.

    `ditto(lam=1.0)` is the component, a value of a setting. With other arguments it
    builds: `ditto(task, local, lam=1.0)`. What has no other arguments is built by
    calling the component: `clip(norm=1.0)()`.
    """
    build = validate(factory)

    @functools.wraps(factory)
    def make(*args: Any, **kwargs: Any) -> Any:
        context = annotations.parameters(factory).keys() - options(factory).keys()
        if args or context & kwargs.keys():
            return build(*args, **kwargs)
        check_names(factory.__name__, options(factory), kwargs)
        check_values(factory.__name__, factory, kwargs)
        return Component(name_of(factory), kwargs, build)

    return make


def check(
    kind: str, choice: Component, factory: Callable, also: Collection[str] = ()
) -> None:
    """Raises a ValueError if `factory` lacks or needs a parameter, or its value.

    A value has to be of the parameter's annotated type, and in its `Range`. `also` are
    parameters that every choice of this kind takes, whatever makes it.
    """
    known = options(factory)
    owner = f"{kind} {choice.name!r}"
    check_names(owner, {*known, *also}, choice.options)
    check_values(owner, factory, choice.options)
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in choice.options:
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
        has_range = any(
            each.ranges for each in annotations.alternatives(parameter.annotation)
        )
        if name in values and (name in known or has_range):
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
    expected = annotations.find_expected(value, parameter.annotation)
    if expected is None:
        return
    if parameter.default not in (None, (), parameter.empty):
        expected += f", such as {parameter.default!r}"
    raise ValueError(f"{name} is {value!r}; expected {expected}")
