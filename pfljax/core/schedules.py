"""How the learning rate changes: the schedules of optax by name, in multiples of `lr`.

    cosine:decay_steps=100              by round: lr (1 + cos(pi r / 100)) / 2
    warmup_cosine:warmup_steps=5,decay_steps=100
    exponential:transition_steps=1,decay_rate=0.99
    piecewise_constant:boundaries=(50,75),scales=(0.1,0.1)
    linear:end_value=0.1,transition_steps=20,by=step

The names are those of optax, with or without the ends of `ENDS`. Rounds count from 0,
of asynchronous rounds as well. With by=step, a client's steps count from 0 in each
round, as its optimizer starts afresh. What optax calls `init_value` or `peak_value` is
1 here, and a warm-up begins at 0, unless an option says otherwise.

A `Local` of one's own takes a schedule of optax as it is: `learning_rate` is a number
or a function of the round, and `by_step` a multiple of it by the local step.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import optax

from pfljax import registry
from pfljax.registry import Choice

ENDS = ("_decay_schedule", "_schedule", "_decay")
UNWRITTEN = ("sgdr_schedule",)  # whose arguments no option can say
BY = ("round", "step")
PAIRS = "boundaries_and_scales"  # of optax's piecewise schedules, a dict
HALVES = ("boundaries", "scales")
MAY_BE_ZERO = ("warmup_steps",)


class Schedule(NamedTuple):
    """A multiple of the learning rate."""

    by: str  # what it counts, one of `BY`
    factor: Callable[[Any], Any]  # (count, traced or not) -> f32[]


def known() -> dict[str, Callable[..., Any]]:
    """The schedules of optax by name, without the ends that say no more."""
    functions = {}
    for name, function in vars(optax.schedules).items():
        if not inspect.isfunction(function) or name in UNWRITTEN:
            continue
        for end in ENDS:
            if name.endswith(end):
                functions.setdefault(name.removesuffix(end), function)
                break
    return functions


def function_of(name: str) -> Callable[..., Any]:
    """The function of optax by this name, or by its whole name in optax.

    Raises:
      ValueError: there is none.
    """
    functions = known()
    for end in ENDS:
        if name.endswith(end) and name.removesuffix(end) in functions:
            name = name.removesuffix(end)
            break
    return registry.find("schedule", functions, name)


def make(choice: Choice) -> Schedule | None:
    """The schedule of a choice; None for "constant", which changes nothing.

    Raises:
      ValueError: the name or an option is unknown, or out of its range.
    """
    function = function_of(choice.name)
    given = _checked(choice, function)
    by = given.pop("by", "round")
    if function is optax.constant_schedule and not given:
        return None
    try:
        return Schedule(by, function(**_arguments(function, given)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"schedule {str(choice)!r}: {error}") from None


def check(choice: Choice) -> None:
    """Raises a ValueError for what `make` refuses."""
    make(choice)


def _arguments(
    function: Callable[..., Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of optax: the options, and where a schedule of 1 begins."""
    given = {**_begins(function), **options}
    if PAIRS in inspect.signature(function).parameters:
        boundaries, scales = (_several(given.pop(half)) for half in HALVES)
        if len(boundaries) != len(scales):
            raise ValueError(
                f"boundaries are {boundaries} and scales {scales}; expected as many of "
                "both, such as boundaries=(50,75),scales=(0.1,0.1)"
            )
        given[PAIRS] = dict(zip(boundaries, scales, strict=True))
    return given


def options(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """What may be given of a schedule, with defaults; a parameter without needs one."""
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


def _begins(function: Callable[..., Any]) -> dict[str, float]:
    """Where a schedule of 1 begins: what optax asks for and no option has to say."""
    asked = inspect.signature(function).parameters
    begins = dict.fromkeys(("value", "init_value", "peak_value"), 1.0)
    if "peak_value" in asked:
        begins["init_value"] = 0.0
    return {name: value for name, value in begins.items() if name in asked}


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _checked(choice: Choice, function: Callable[..., Any]) -> dict[str, Any]:
    """The options of a choice, each known and in its range."""
    listed = options(function)
    owner = f"schedule {choice.name!r}"
    for name, value in choice.args:
        registry.find(f"parameter of {owner}", listed, name)
        _check_value(f"{owner}: {name}", name, value)
    for name, parameter in listed.items():
        if parameter.default is parameter.empty and name not in choice.kwargs:
            raise ValueError(f"{owner} needs the parameter {name!r}")
    return choice.kwargs


def _check_value(owner: str, name: str, value: Any) -> None:
    """Refuses a word where numbers are, and numbers that no rate or count can be."""
    if name == "by":
        registry.require_known(owner, value, BY)
        return
    if name in ("staircase", "interpolate_type"):
        return
    counts = name.endswith("_steps") or name in ("boundaries", "transition_begin")
    for number in _several(value):
        kinds = int if counts else (int, float)
        is_number = isinstance(number, kinds) and not isinstance(number, bool)
        expected = "a whole number" if counts else "a number"
        registry.require(owner, value, is_number, expected)
        limits = registry.INT32 if counts else registry.NOT_NEGATIVE
        registry.require(owner, value, limits.takes(number), limits.expected)
        least = int(name.endswith("_steps") and name not in MAY_BE_ZERO)
        registry.require(owner, value, number >= least, f"at least {least}")
