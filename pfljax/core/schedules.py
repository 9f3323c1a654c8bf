"""Learning rate schedules: those of optax by name, as multiples of `lr`.

    cosine:decay_steps=100              lr (1 + cos(pi r / 100)) / 2 in round r
    warmup_cosine:warmup_steps=5,decay_steps=100
    exponential:transition_steps=1,decay_rate=0.99
    piecewise_constant:boundaries=(50,75),scales=(0.1,0.1)
    linear:end_value=0.1,transition_steps=20,by=step

The names are those of optax, with or without the suffixes in `SUFFIXES`. Rounds count
from 0, also if they are asynchronous. With by=step, the steps of a client count from 0
in each round, since its optimizer starts anew.

If you make a `Local` yourself, pass a schedule of optax directly: `learning_rate` is a
number or a function of the round, and `by_step` a factor for each local step.

A choice becomes a function of optax in three steps. For the fourth line above:

    name       `find_function`  optax.piecewise_constant_schedule, which takes
                                init_value and boundaries_and_scales, a dict
    options    `options`        init_value=1, boundaries, scales, by="round"
    arguments  `_arguments`     init_value=1, boundaries_and_scales={50: 0.1, 75: 0.1}
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import optax

from pfljax.core import factories, ranges, requirements
from pfljax.core.components import Component, is_own

SUFFIXES = ("_decay_schedule", "_schedule", "_decay")
EXCLUDED = ("sgdr_schedule",)  # its arguments cannot be written as options
BY = ("round", "step")
# A schedule is a multiple of lr: it starts at 1, or at 0 if it warms up.
START = {"value": 1.0, "init_value": 1.0, "peak_value": 1.0}
WARM_UP_START = {"init_value": 0.0, "peak_value": 1.0}
# An argument of optax's piecewise schedules: a dict there, two options here.
PAIRS = "boundaries_and_scales"
HALVES = ("boundaries", "scales")
# The types of options: words, whole numbers, and otherwise numbers.
WORDS = ("staircase", "interpolate_type")
COUNTS = ("boundaries", "transition_begin")  # and options that end in _steps
MAY_BE_ZERO = ("warmup_steps",)  # of the options that end in _steps

Function = Callable[..., Any]  # of optax; it returns a schedule


class Schedule(NamedTuple):
    """A factor of the learning rate."""

    by: str  # what the count counts, one of `BY`
    factor: Callable[[Any], Any]  # (count, traced or not) -> f32[]


def make(choice: Component) -> Schedule | None:
    """Makes the schedule of a choice; None for "constant", which changes nothing.

    Raises:
      ValueError: the name or an option is unknown, or an option is out of its range.
    """
    if is_own(choice.name):
        return _make_own(choice)
    function = find_function(choice.name)
    _check_options(choice, function)
    values = choice.options
    by = values.pop("by", BY[0])
    if function is optax.constant_schedule and not values:
        return None
    try:
        return Schedule(by, function(**_arguments(function, values)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"schedule {str(choice)!r}: {error}") from None


def _make_own(choice: Component) -> Schedule:
    """The schedule of one's own function of options, which takes no `by`."""
    values = choice.options
    by = values.pop("by", BY[0])
    _check_value(f"schedule {choice.name!r}: by", "by", by)
    factor = factories.build("schedule", {}, Component(choice.name, values))
    expected = "a function of the count of rounds or steps"
    requirements.require_call(f"what {choice} returns", factor, ("count",), expected)
    return Schedule(by, factor)


def check(choice: Component) -> None:
    """Raises a ValueError if `make` would."""
    make(choice)


def list_schedules() -> dict[str, Function]:
    """The schedules of optax by name, without the suffixes in `SUFFIXES`."""
    functions = {}
    for name, function in vars(optax.schedules).items():
        if inspect.isfunction(function) and name not in EXCLUDED:
            short = _without_suffix(name)
            if short != name:
                functions.setdefault(short, function)
    return functions


def find_function(name: str) -> Function:
    """The function of optax with this name, short or whole.

    Raises:
      ValueError: there is no such function.
    """
    functions = list_schedules()
    short = _without_suffix(name)
    return requirements.find(
        "schedule", functions, short if short in functions else name
    )


def _without_suffix(name: str) -> str:
    """The name without the first of `SUFFIXES` that it ends with."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def options(function: Function) -> dict[str, inspect.Parameter]:
    """The options of a schedule; those without a default are required."""
    start = _start(function)
    kind = inspect.Parameter.KEYWORD_ONLY
    listed = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == PAIRS:
            for half in HALVES:
                listed[half] = inspect.Parameter(half, kind)
            continue
        default = start.get(name, parameter.default)
        listed[name] = parameter.replace(kind=kind, default=default)
    listed["by"] = inspect.Parameter("by", kind, default=BY[0])
    return listed


def _arguments(function: Function, values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for optax: the start of the schedule, and the options."""
    arguments = {**_start(function), **values}
    if PAIRS in inspect.signature(function).parameters:
        boundaries, scales = (_as_tuple(arguments.pop(half)) for half in HALVES)
        if len(boundaries) != len(scales):
            raise ValueError(
                f"boundaries are {boundaries} and scales {scales}; expected equal "
                "numbers of both, such as boundaries=(50,75),scales=(0.1,0.1)"
            )
        arguments[PAIRS] = dict(zip(boundaries, scales, strict=True))
    return arguments


def _start(function: Function) -> dict[str, float]:
    """The values at which the schedule starts, which are no options."""
    parameters = inspect.signature(function).parameters
    start = WARM_UP_START if "peak_value" in parameters else START
    return {name: value for name, value in start.items() if name in parameters}


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _check_options(choice: Component, function: Function) -> None:
    """Raises a ValueError unless each option is known and in its range."""
    listed = options(function)
    owner = f"schedule {choice.name!r}"
    values = choice.options
    factories.check_names(owner, listed, values)
    for name, value in values.items():
        _check_value(f"{owner}: {name}", name, value)
    for name, parameter in listed.items():
        if parameter.default is parameter.empty and name not in values:
            raise ValueError(f"{owner} needs the parameter {name!r}")
    # The message of optax would be about the steps that are left after the warm-up.
    warmup = values.get("warmup_steps", 0)
    steps = values.get("decay_steps", warmup + 1)
    if steps <= warmup:
        raise ValueError(
            f"{owner}: decay_steps is {steps} and warmup_steps {warmup}; decay_steps "
            f"includes the warm-up, so expected more than {warmup}"
        )


def _check_value(owner: str, name: str, value: Any) -> None:
    """Refuses words for numbers, and numbers that no rate or count can have."""
    if name == "by":
        requirements.require_known(owner, value, BY)
        return
    if name in WORDS:
        return
    counts = name.endswith("_steps") or name in COUNTS
    for number in _as_tuple(value):
        kinds = int if counts else (int, float)
        is_number = isinstance(number, kinds) and not isinstance(number, bool)
        expected = "a whole number" if counts else "a number"
        requirements.require(owner, value, is_number, expected)
        limits = ranges.INT32 if counts else ranges.NOT_NEGATIVE
        requirements.require(owner, value, limits.takes(number), limits.expected)
        least = int(name.endswith("_steps") and name not in MAY_BE_ZERO)
        requirements.require(owner, value, number >= least, f"at least {least}")
