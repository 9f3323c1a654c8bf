"""What settings choose by name: their factories, and the checks by these.

Imports stand inside the functions: whoever only reads a run folder loads no JAX.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from pfljax import registry
from pfljax.registry import Choice, annotations
from pfljax.runs.config import SEVERAL
from pfljax.runs.settings import Experiment, flat

KINDS = {  # what messages call a setting's choices
    "dataset": "data set",
    "partition": "partition",
    "noise": "noise",
    "model": "model",
    "models": "model or group of models",
    "proxy": "model",
    "selection": "selection",
    "channel": "channel",
    "aggregation": "aggregation",
    "profile": "profile",
    "mode": "mode",
    "log": "log",
}


def check(experiment: Experiment, given: Collection[str] = ()) -> None:
    """Raises a ValueError for a name or an option that is unknown, or out of range.

    `given` are settings that are mere names: a run has their things in Python.
    """
    from pfljax import data
    from pfljax.core import optimizers, schedules
    from pfljax.runs import sinks

    for setting, kind in KINDS.items():
        if setting in given:
            continue
        for choice in _choices(experiment, setting):
            factory = _factory(setting, choice)
            if setting == "channel" and choice.name in _factories("aggregation"):
                raise ValueError(
                    f"channel has {choice}, which is no channel but an aggregation; "
                    f"give it as aggregation (--aggregation {choice})"
                )
            # Of a data set TFDS says whether it knows the name.
            if factory is None and setting != "dataset":
                registry.find(kind, _factories(setting), choice.name)
            if factory is not None:
                also = data.OF_ALL if setting == "dataset" else ()
                registry.check(kind, choice, factory, also)
    optimizers.check(experiment.training.optimizer)
    schedules.check(experiment.training.schedule)
    _check_server_optimizer(experiment)
    sinks.check_installed(experiment.output.log)


def _check_server_optimizer(experiment: Experiment) -> None:
    """Refuses an optimizer of the server that is none, or lacks its rate."""
    from pfljax import algorithms
    from pfljax.core import server_step

    chosen = experiment.participation.server_optimizer
    if chosen.name != "none":
        # Methods that have one themselves have a rate of it, too.
        factory = algorithms.method(experiment.method.algorithm)
        has_rate = own_optimizer(factory) is not None
        server_step.by_name(str(chosen), 1.0 if has_rate else None)
    elif chosen.args:
        raise ValueError(
            f"server_optimizer is {str(chosen)!r}; expected none alone, or an "
            "optimizer with its options, such as fedadam:learning_rate=0.01"
        )


def with_server_optimizer(experiment: Experiment, factory: Callable) -> Experiment:
    """The experiment with the method's own optimizer of the server, if it has one."""
    own = own_optimizer(factory)
    if own is None or experiment.participation.server_optimizer.name != "none":
        return experiment
    return experiment.replace(server_optimizer=own)


def own_optimizer(factory: Callable) -> str | None:
    """The server's optimizer of a method that steps by one; None of others."""
    parameter = annotations.parameters(factory).get("server_optimizer")
    return None if parameter is None else parameter.default


def in_floats(experiment: Experiment) -> Experiment:
    """The experiment with 1 as 1.0 in every choice that takes a float: they are one.

    Names that are unknown stay as they are.
    """
    changed: dict[str, Any] = {}
    for setting in ("optimizer", "schedule", "server_optimizer", *KINDS):
        choices = []
        for choice in _choices(experiment, setting):
            factory = _factory(setting, choice)
            if factory is not None:
                choice = registry.in_floats(choice, factory)
            choices.append(choice)
        if choices:
            changed[setting] = choices if setting in SEVERAL else choices[0]
    return experiment.replace(**changed)


def _choices(experiment: Experiment, setting: str) -> tuple[Choice, ...]:
    """The choices of a setting: one, or several; none of a wrong type."""
    value = flat(experiment)[setting]
    if isinstance(value, Choice):
        return (value,)
    several = value if isinstance(value, tuple) else ()
    return tuple(choice for choice in several if isinstance(choice, Choice))


def _factory(setting: str, choice: Choice) -> Callable | None:
    """What makes the choice; None for a name that is unknown."""
    if setting in ("optimizer", "server_optimizer"):
        import optax

        from pfljax.core.adaptive_server import SERVER_OPTIMIZERS

        if setting == "server_optimizer" and choice.name in SERVER_OPTIMIZERS:
            return SERVER_OPTIMIZERS[choice.name]
        named = getattr(optax, choice.name, None)
        return named if callable(named) else None
    if setting == "schedule":
        from pfljax.core import schedules

        return schedules.function_of(choice.name)
    return _factories(setting).get(choice.name)


def _factories(setting: str) -> Mapping[str, Callable]:
    """The factories of a setting, by name."""
    from pfljax import channel, data, models, selection
    from pfljax.data.label_noise import NOISES
    from pfljax.data.profiles import PROFILES
    from pfljax.engine.modes import MODES
    from pfljax.models.groups import GROUPS
    from pfljax.runs.sinks import SINKS

    groups = dict.fromkeys(GROUPS, _group)
    known: dict[str, Mapping[str, Callable]] = {
        "dataset": data.DATASETS,
        "partition": data.PARTITIONS,
        "noise": NOISES,
        "model": {"auto": _auto, **models.MODELS},
        "models": {**models.MODELS, **groups},
        "proxy": {"auto": _auto, **models.MODELS},
        "selection": selection.SELECTIONS,
        "channel": channel.ON_THE_WAY,
        "aggregation": channel.AGGREGATIONS,
        "profile": PROFILES,
        "mode": MODES,
        "log": SINKS,
    }
    return known[setting]


def _auto() -> None:
    """The model "auto", which takes no options: the rows choose another."""


def _group() -> None:
    """A group of models, which takes no options: it stands for their names."""
