"""The factories of each kind of component, and the checks of components in settings.

Registries are loaded where they are needed: readers of a run folder load no JAX.
"""

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from pfljax.core import annotations, factories
from pfljax.core.components import Component, is_own
from pfljax.runs.settings import Experiment

REGISTRIES = {
    "model": ("pfljax.models", "MODELS"),
    "dataset": ("pfljax.data", "DATASETS"),
    "partition": ("pfljax.data", "PARTITIONS"),
    "noise": ("pfljax.data.label_noise", "NOISES"),
    "selection": ("pfljax.selection", "SELECTIONS"),
    "profile": ("pfljax.data.profiles", "PROFILES"),
    "mode": ("pfljax.engine.modes", "MODES"),
    "channel": ("pfljax.channel", "TRANSFORMS"),
    "aggregation": ("pfljax.channel", "AGGREGATIONS"),
    "server_optimizer": ("pfljax.core.adaptive_server", "SERVER_OPTIMIZERS"),
    "log": ("pfljax.runs.sinks", "SINKS"),
    "loss": ("pfljax.core.kinds", "LOSSES"),
    "metrics": ("pfljax.evaluation.whole", "METRICS"),
    "augment": ("pfljax.models.augmentation", "AUGMENTATIONS"),
}
KINDS = ("algorithm", "optimizer", "schedule", *REGISTRIES)
SETTINGS = (*REGISTRIES, "models", "proxy")


def find_factories(kind: str) -> Mapping[str, Callable]:
    """The factories of a kind by name, without one's own."""
    if kind == "algorithm":
        from pfljax import algorithms

        return algorithms.methods()
    if kind == "schedule":
        from pfljax.core import schedules

        return schedules.list_schedules()
    if kind == "optimizer":
        from pfljax.core import optimizers

        return {**optimizers.known_of_optax(), "sgd": optimizers.sgd}
    module, name = REGISTRIES[kind]
    return getattr(importlib.import_module(module), name)


def check(experiment: Experiment, from_python: Collection[str] = ()) -> None:
    """Raises a ValueError for a component or an option that is unknown or wrong.

    Settings `from_python` are not checked: the caller gives their objects.
    """
    from pfljax.core import optimizers, schedules
    from pfljax.runs import sinks

    for setting in SETTINGS:
        if setting not in (*from_python, "server_optimizer"):
            for choice in _components(experiment, setting):
                _check(setting, choice)
    optimizers.check(experiment.optimizer)
    schedules.check(experiment.schedule)
    _check_server_optimizer(experiment)
    sinks.check(experiment)


def _check(setting: str, choice: Component) -> None:
    also: Collection[str] = ()
    if setting == "dataset":
        from pfljax.data import OF_ALL

        also = OF_ALL
        # TFDS says whether it knows another name.
        if factories.get(setting, find_factories(setting), choice.name) is None:
            return
    factory = factories.find(setting, _factories(setting), choice.name)
    factories.check(setting, choice, factory, also)


def _factories(setting: str) -> Mapping[str, Callable]:
    """The factories of a setting, with "auto" and groups where it takes them."""
    if setting in ("model", "proxy"):
        return {"auto": _no_options, **find_factories("model")}
    if setting == "loss":
        return {"auto": _no_options, **find_factories(setting)}
    if setting == "models":
        from pfljax.models.model_groups import GROUPS

        return {**find_factories("model"), **dict.fromkeys(GROUPS, _no_options)}
    if setting == "server_optimizer":
        return {**find_factories("optimizer"), **find_factories(setting)}
    return find_factories(setting)


def _no_options() -> None:
    """The factory of "auto" and of groups, which take no options."""


def _check_server_optimizer(experiment: Experiment) -> None:
    """Refuses an unknown optimizer of the server, or one without its rate."""
    from pfljax import algorithms
    from pfljax.core import server_step

    choice = experiment.server_optimizer
    if choice == Component("none"):
        return
    # Methods that have one themselves have a rate of it, too.
    factory = algorithms.method(experiment.algorithm.name)
    has_rate = "server_optimizer" in annotations.parameters(factory)
    server_step.by_name(str(choice), 1.0 if has_rate else None)


def convert_to_floats(experiment: Experiment) -> Experiment:
    """The experiment with 1 written as 1.0 in every option that is a float.

    Both are one run. Unknown names stay as they are.
    """
    changed: dict[str, Any] = {}
    for setting in ("optimizer", "schedule", *SETTINGS):
        choices = []
        for choice in _components(experiment, setting):
            factory = factories.get(setting, _factories(setting), choice.name)
            if factory is not None:
                choice = factories.convert_to_floats(choice, factory)
            choices.append(choice)
        several = isinstance(getattr(experiment, setting), tuple)
        changed[setting] = tuple(choices) if several else choices[0]
    return experiment.replace(**changed)


def list_own(experiment: Experiment) -> dict[str, Callable]:
    """One's own functions among the components, by name."""
    listed = {}
    for setting in ("algorithm", "optimizer", "schedule", *SETTINGS):
        for choice in filter(
            lambda c: is_own(c.name), _components(experiment, setting)
        ):
            listed[choice.name] = factories.find(setting, {}, choice.name)
    return listed


def _components(experiment: Experiment, setting: str) -> Iterator[Component]:
    """The components of a setting: one, or several."""
    value = getattr(experiment, setting)
    yield from value if isinstance(value, tuple) else [value]
