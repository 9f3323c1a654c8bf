"""Wrong values of every setting and every option, as commands and as Python calls.

What stands here is data: WRONG are the values, and MAY says which of them a kind of
setting may take all the same, and why. All else must be refused.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_args

NAN = float("nan")
INF = float("inf")
# 32 bits, 33 and 64 with a sign do not hold them.
HUGE = ("2147483648", "4294967296", "9223372036854775808")
WRONG = [
    *("0", "-1", "1.5", *HUGE),
    *("1e-320", "1e308", "nan", "inf", "-inf", "", "x", "None", "True", "[1]"),
    *("{[1]:2}", " ", "ü", "\udcff"),
]
WRONG_IN_PYTHON: list[Any] = [
    *(0, -1, 1.5, *map(int, HUGE), 1e-320, 1e308, NAN, INF, -INF, "", "x", None),
    *(True, [1], {1: 2}, " ", "ü", "\udcff", b"x"),
]
NOT_GIVEN = {"None": "not given"}
ALLOWED = "a number that the option may take"
WHOLE = {"0": ALLOWED}
FRACTION = {"1.5": ALLOWED}
DIVERGES = dict.fromkeys(HUGE, "a finite number: a run that diverges by it says so")
NUMBER = WHOLE | FRACTION | DIVERGES | {"1e-320": "0 in float32, which it may be"}
SHARE = WHOLE | {"1e-320": "a share so small that it is none"}
TEXT = dict.fromkeys(WRONG, "a name of the user's own")
SWITCH = {"True": "it is on"}
# Settings that take some of the values; the others take none but what NOT_GIVEN says.
MAY: dict[str, dict[str, str]] = {
    "label": TEXT | NOT_GIVEN,
    "out": TEXT | NOT_GIVEN,
    "baseline": {"": "not given"} | NOT_GIVEN,
    "lr": FRACTION | DIVERGES,
    "lr_decay": FRACTION | DIVERGES,
    "weight_decay": NUMBER,
    "momentum": SHARE,
    "validation": SHARE,
    "unseen": SHARE,
    "public": SHARE,
    "stragglers": SHARE,
    "seed": WHOLE,
    "channel": {"": "no channel", " ": "no channel", "None": "no channel"},
    "aggregation": {"": "no one", " ": "no one", "None": "no one"},
    "devices": NOT_GIVEN,
    "smoothness": NOT_GIVEN,
    "concavity": WHOLE,
    "steps": NOT_GIVEN,
    "width": NOT_GIVEN,
}
FLAGS = ("stratified", "drop_stragglers", "trained", "dissimilarity", "homes")
# What must stand beside a value of this setting, or the answer is to something else.
BESIDE = {"steps": {"epochs": None}, "homes": {}, "drop_stragglers": {}}
BASE = {
    "model": "mlp:hidden=(8,)",
    "clients": 6,
    "cohort": 3,
    "rounds": 1,
    "epochs": 1,
    "eval_every": 1,
    "batch_size": 20,
    "width": 1,
}
CHOICES = {  # settings that are a choice, and their registries
    "partition": "pfljax.data.partitions:PARTITIONS",
    "selection": "pfljax.selection:SELECTIONS",
    "channel": "pfljax.core.channel:ON_THE_WAY",
    "aggregation": "pfljax.core.channel:AGGREGATIONS",
    "model": "pfljax.models:MODELS",
    "dataset": "pfljax.data.sources.catalogue:DATASETS",
    "noise": "pfljax.data.label_noise:NOISES",
}


class Input(NamedTuple):
    """A wrong input: a command or a Python call, and what its answer must name."""

    name: str
    args: tuple[str, ...] = ()  # of a command
    source: str = ""  # of a Python call
    names: tuple[str, ...] = ()  # the answer has one of them
    may: str = ""  # why it may be accepted
    make: Callable[..., Any] | None = None  # makes files in the folder of the trial
    env: tuple[tuple[str, str], ...] = ()  # of the environment, {T} for that folder
    whole: bool = False  # run to its end: its answer comes late
    check: Callable[..., Any] | None = None  # raises where an accepted one ended wrong


def flags(settings: dict[str, Any]) -> list[str]:
    """Settings as options of a command."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


def commands() -> Iterator[Input]:
    """`pfljax run` with each wrong value of each setting and option."""
    from pfljax.runs.settings import GIVEN

    for setting in GIVEN:
        may = SWITCH if setting in FLAGS else MAY.get(setting, {})
        option = f"--{setting.replace('_', '-')}"
        for value in WRONG:
            base = BASE | BESIDE.get(setting, {})
            base.pop(setting, None)
            words = ("run", *flags(base), f"{option}={value}")
            names = (setting, option.strip("-"), _kind(setting))
            # The command line tells of the value, for a switch has none.
            names += (f"takes no {value}",) if setting in FLAGS else ()
            name = f"run {option}={value!a}"
            yield Input(name, words, names=names, may=may.get(value, ""))
    for method, option, may in method_options():
        for value in WRONG:
            text = f"{method}:{option}={value}"
            words = ("run", *flags(BASE), f"--algorithm={text}")
            name = f"run --algorithm={text!a}"
            yield Input(name, words, names=(option, text), may=may.get(value, ""))


def calls() -> Iterator[Input]:
    """`run(Experiment(...))` with each wrong value, in Python."""
    from pfljax.runs.settings import GIVEN

    for setting in GIVEN:
        may = {"True": "it is on"} if setting in FLAGS else MAY.get(setting, {})
        for value in WRONG_IN_PYTHON:
            base = BASE | BESIDE.get(setting, {}) | {setting: value}
            yield Input(
                f"run(Experiment({setting}={value!a}))",
                source=f"run(Experiment(**{_source(base)}))",
                names=(setting, _kind(setting)),
                may=_may(may, value),
            )
    for method, option, may in method_options():
        for value in WRONG_IN_PYTHON:
            chosen = f"Choice({method!r}, {_source({option: value})})"
            name = f"run(Experiment(Choice({method!r}, {{{option!r}: {value!a}}})))"
            source = f"run(Experiment({chosen}, **{_source(BASE)}))"
            yield Input(name, source=source, names=(option,), may=_may(may, value))


def choices() -> Iterator[Input]:
    """Wrong values of the arguments of each choice, such as shards:per_client=0."""
    for setting, place in CHOICES.items():
        for name, factory in _registry(place).items():
            for option, parameter in _options(factory).items():
                may = _of_parameter(parameter)
                for value in WRONG:
                    text = f"{name}:{option}={value}"
                    base = BASE | {setting: text}
                    yield Input(
                        f"run(Experiment({setting}={text!a}))",
                        source=f"run(Experiment(**{_source(base)}))",
                        names=(option, text, setting, name),
                        may=may.get(value, ""),
                    )


def method_options() -> Iterator[tuple[str, str, dict[str, str]]]:
    """(method, option, what it may take) of every option of every method."""
    from pfljax import algorithms, registry

    for method, factory in algorithms.methods().items():
        written = registry.defaults(factory)
        for option, parameter in registry.options(factory).items():
            if option in written:
                yield method, option, _of_parameter(parameter)


def _of_parameter(parameter: inspect.Parameter) -> dict[str, str]:
    """What a parameter may take, by the type of its default and annotation alone."""
    kind = str(parameter.annotation)
    may: dict[str, str] = {}
    if "bool" in kind or isinstance(parameter.default, bool):
        may = SWITCH
    elif "float" in kind:
        may = NUMBER
    elif "int" in kind:
        may = WHOLE
    optional = parameter.default is None or type(None) in get_args(parameter.annotation)
    return may | (NOT_GIVEN if optional or "None" in kind else {})


def _may(may: dict[str, str], value: Any) -> str:
    """The reason that a value of Python may be accepted, by its text."""
    is_text = isinstance(value, str)
    if is_text and value in ("x", "", " ", "ü"):
        return may.get(value, "")
    if is_text or isinstance(value, bytes | list | dict):
        return ""
    return may.get(str(value), "")


def _kind(setting: str) -> str:
    """The word of the answer to an unknown name."""
    words = {"dataset": "data set", "algorithm": "algorithm", "model": "model"}
    return words.get(setting, setting)


def _source(settings: dict[str, Any]) -> str:
    """Settings as Python text in which nan and inf are names."""
    return ascii(settings)


def _registry(place: str) -> dict[str, Callable]:
    import importlib

    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _options(factory: Callable) -> dict[str, inspect.Parameter]:
    from pfljax import registry

    return registry.options(factory)
