"""How the learning rate changes: the schedules of optax by name, in multiples of `lr`.

    cosine:decay_steps=100              by round: lr (1 + cos(pi r / 100)) / 2
    warmup_cosine:warmup_steps=5,decay_steps=100
    exponential:transition_steps=1,decay_rate=0.99
    piecewise_constant:boundaries=(50,75),scales=(0.1,0.1)
    linear:end_value=0.1,transition_steps=20,by=step

The names are those of optax, with or without the ends of `ENDS`. Rounds count from 0,
of asynchronous rounds as well. With by=step, a client's steps count from 0 in each
round, as its optimizer starts afresh.

A `Local` of one's own takes a schedule of optax as it is: `learning_rate` is a number
or a function of the round, and `by_step` a multiple of it by the local step.

From a choice to a function of optax there are three steps. The fourth line above:

    name       `function_of`   optax.piecewise_constant_schedule, which takes
                               init_value and boundaries_and_scales, a dict
    options    `options`       init_value=1, boundaries, scales, by="round"
    arguments  `_arguments`    init_value=1, boundaries_and_scales={50: 0.1, 75: 0.1}
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import optax

from pfljax import registry
from pfljax.registry import Component

ENDS = ("_decay_schedule", "_schedule", "_decay")
UNWRITTEN = ("sgdr_schedule",)  # whose arguments no option can say
BY = ("round", "step")
# A schedule is a multiple of lr: it begins at 1, and what warms up at 0.
BEGINS = {"value": 1.0, "init_value": 1.0, "peak_value": 1.0}
WARMED_UP = {"init_value": 0.0, "peak_value": 1.0}
# Of optax's piecewise schedules, a dict, which is two options here.
PAIRS = "boundaries_and_scales"
HALVES = ("boundaries", "scales")
# What options may be: a word, a whole number, or else a number.
WORDS = ("staircase", "interpolate_type")
COUNTS = ("boundaries", "transition_begin")  # and what ends in _steps
MAY_BE_ZERO = ("warmup_steps",)  # of what ends so

Function = Callable[..., Any]  # of optax, which makes a schedule


class Schedule(NamedTuple):
    """A multiple of the learning rate."""

    by: str  # what it counts, one of `BY`
    factor: Callable[[Any], Any]  # (count, traced or not) -> f32[]


def make(choice: Component) -> Schedule | None:
    """The schedule of a choice; None for "constant", which changes nothing.

    Raises:
      ValueError: the name or an option is unknown, or out of its range.
    """
    function = find_function(choice.name)
    _check_options(choice, function)
    values = choice.options
    by = values.pop("by", "round")
    if function is optax.constant_schedule and not values:
        return None
    try:
        return Schedule(by, function(**_arguments(function, values)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"schedule {str(choice)!r}: {error}") from None


def check(choice: Component) -> None:
    """Raises a ValueError for what `make` refuses."""
    make(choice)


def list_schedules() -> dict[str, Function]:
    """The schedules of optax by name, without the ends that say no more."""
    functions = {}
    for name, function in vars(optax.schedules).items():
        if inspect.isfunction(function) and name not in UNWRITTEN:
            short = _without_end(name)
            if short != name:
                functions.setdefault(short, function)
    return functions


def find_function(name: str) -> Function:
    """The function of optax by this name, or by its whole name in optax.

    Raises:
      ValueError: there is none.
    """
    functions = list_schedules()
    short = _without_end(name)
    return registry.find("schedule", functions, short if short in functions else name)


def _without_end(name: str) -> str:
    """The name without the first of `ENDS` that it has."""
    for end in ENDS:
        if name.endswith(end):
            return name.removesuffix(end)
    return name


def options(function: Function) -> dict[str, inspect.Parameter]:
    """The options of a schedule with their defaults; those without are required."""
    begins = _begins(function)
    kind = inspect.Parameter.KEYWORD_ONLY
    listed = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == PAIRS:
            for half in HALVES:
                listed[half] = inspect.Parameter(half, kind)
            continue
        default = begins.get(name, parameter.default)
        listed[name] = parameter.replace(kind=kind, default=default)
    listed["by"] = inspect.Parameter("by", kind, default=BY[0])
    return listed


def _arguments(function: Function, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of optax: the options, and where the schedule begins."""
    arguments = {**_begins(function), **given}
    if PAIRS in inspect.signature(function).parameters:
        boundaries, scales = (_several(arguments.pop(half)) for half in HALVES)
        if len(boundaries) != len(scales):
            raise ValueError(
                f"boundaries are {boundaries} and scales {scales}; expected as many of "
                "both, such as boundaries=(50,75),scales=(0.1,0.1)"
            )
        arguments[PAIRS] = dict(zip(boundaries, scales, strict=True))
    return arguments


def _begins(function: Function) -> dict[str, float]:
    """Where the schedule begins: what optax asks for and no option has to say."""
    asked = inspect.signature(function).parameters
    begins = WARMED_UP if "peak_value" in asked else BEGINS
    return {name: value for name, value in begins.items() if name in asked}


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _check_options(choice: Component, function: Function) -> None:
    """Raises a ValueError unless each option is known and in its range."""
    listed = options(function)
    owner = f"schedule {choice.name!r}"
    values = choice.options
    registry.check_names(owner, listed, values)
    for name, value in values.items():
        _check_value(f"{owner}: {name}", name, value)
    for name, parameter in listed.items():
        if parameter.default is parameter.empty and name not in values:
            raise ValueError(f"{owner} needs the parameter {name!r}")
    # Of a warm-up, optax counts what is left after it, and would tell of that alone.
    warmup = values.get("warmup_steps", 0)
    steps = values.get("decay_steps", warmup + 1)
    if steps <= warmup:
        raise ValueError(
            f"{owner}: decay_steps is {steps} and warmup_steps {warmup}; decay_steps "
            f"counts the warm-up as well, so expected more than {warmup}"
        )


def _check_value(owner: str, name: str, value: Any) -> None:
    """Refuses a word where numbers are, and numbers that no rate or count can be."""
    if name == "by":
        registry.require_known(owner, value, BY)
        return
    if name in WORDS:
        return
    counts = name.endswith("_steps") or name in COUNTS
    for number in _several(value):
        kinds = int if counts else (int, float)
        is_number = isinstance(number, kinds) and not isinstance(number, bool)
        expected = "a whole number" if counts else "a number"
        registry.require(owner, value, is_number, expected)
        limits = registry.INT32 if counts else registry.NOT_NEGATIVE
        registry.require(owner, value, limits.takes(number), limits.expected)
        least = int(name.endswith("_steps") and name not in MAY_BE_ZERO)
        registry.require(owner, value, number >= least, f"at least {least}")
