"""Settings as config.json has them, and what tells two runs apart."""

import hashlib
import json
from collections.abc import Container, Mapping
from typing import Any

from pfljax import registry
from pfljax.core.precision import EXACT
from pfljax.registry import Choice
from pfljax.runs.groups import UNHASHED as UNHASHED
from pfljax.runs.settings import GROUPS, HOME, Experiment, flat

CHANGEABLE = (*UNHASHED, "rounds")  # by going on
SEVERAL = ("aggregation", "channel", "log", "models")  # settings of several choices
# Settings that came later. Older runs have their defaults, which no digest holds.
LATER = {
    "precision": EXACT,
    "models": [],
    "proxy": "auto",
    "foreign": 0,
    "dissimilarity": False,
    "smoothness": None,
    "concavity": 0.0,
    "profile": "none",
    "deadline": None,
    "mode": "sync",
    "aggregation": [],
    "schedule": "constant",
    "server_optimizer": "none",
}
OPTIMIZER = "server_optimizer"
WERE_CHANNELS = ("median", "trimmed_mean", "krum")  # and are aggregations


def to_dict(experiment: Experiment) -> dict[str, Any]:
    """The settings as JSON types by group; `from_dict` undoes it."""
    values = written(experiment)
    nested: dict[str, Any] = {group: {} for group in GROUPS}
    for name, group in HOME.items():
        nested[group][name] = values[name]
    return nested | {"seed": experiment.seed}


def from_dict(nested: Mapping[str, Any]) -> Experiment:
    """The experiment of a config.json; a ValueError lists the known keys."""
    values = ungrouped(nested)
    options = values.pop("hyper", ())
    method = values.get("algorithm", Experiment().method.algorithm)
    values["algorithm"] = Choice(method, options)
    return Experiment(**values)


def by_name(nested: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a config.json by name, as JSON types, whatever their names.

    Raises:
      ValueError: it holds no settings, or not by group.
    """
    if isinstance(nested, Mapping) and "algorithm" in nested:
        raise ValueError(
            "an older pfljax wrote it, whose settings are not grouped; finish it with "
            "that version, or run it again with another --out"
        )
    if not isinstance(nested, Mapping) or "method" not in nested:
        raise ValueError(
            "expected a JSON object with the settings of an experiment by group "
            f"({', '.join(GROUPS)}), as the config.json of a run"
        )
    values: dict[str, Any] = {}
    for group, settings in nested.items():
        if isinstance(settings, Mapping):
            values |= settings
        else:
            values[group] = settings
    return _with_server_optimizer(_with_aggregation(values))


def _with_server_optimizer(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run whose server's optimizer was an option of its method."""
    options = values.get("hyper")
    if OPTIMIZER in values or not isinstance(options, Mapping):
        return values
    if OPTIMIZER not in options:
        return values
    kept = {name: value for name, value in options.items() if name != OPTIMIZER}
    return values | {"hyper": kept, OPTIMIZER: options[OPTIMIZER]}


def _with_aggregation(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run of before `aggregation`, with what is one now."""
    sent = values.get("channel")
    if "aggregation" in values or not isinstance(sent, list):
        return values
    kept: dict[str, list] = {"channel": [], "aggregation": []}
    for text in sent:
        name, _, _ = str(text).partition(":")
        kept["aggregation" if name in WERE_CHANNELS else "channel"].append(text)
    return values | kept


def named(settings: Mapping[str, Any], without: Container[str] = ()) -> dict[str, Any]:
    """Settings with the method as it is given: its options stand behind its name.

    Such as ditto:lam=1.0; options of the names `without` are left out.
    """
    if "algorithm" not in settings:
        return dict(settings)
    options = settings.get("hyper") or {}
    kept = {name: value for name, value in options.items() if name not in without}
    method = str(Choice(settings["algorithm"], kept))
    values = {**settings, "algorithm": method}
    return {name: value for name, value in values.items() if name != "hyper"}


def ungrouped(nested: Mapping[str, Any]) -> dict[str, Any]:
    """`by_name` of settings that this version knows.

    Raises:
      ValueError: as `by_name`, or a group or a setting is unknown.
    """
    values = by_name(nested)
    for group, settings in nested.items():
        registry.find("group of settings", {**GROUPS, "seed": int}, group)
        if group == "seed":
            continue
        if not isinstance(settings, Mapping):
            raise ValueError(f"{group} is {settings!r}; expected its settings by name")
        for name in settings:
            registry.find(f"setting of {group}", vars(GROUPS[group]()), name)
    return values


def written(experiment: Experiment) -> dict[str, Any]:
    """The settings by name, as JSON types."""
    values = flat(experiment)
    for name, value in values.items():
        if isinstance(value, Choice):
            values[name] = str(value)
    values["hyper"] = dict(values["hyper"])
    for name in SEVERAL:
        values[name] = [str(choice) for choice in values[name]]
    return values


def digest(experiment: Experiment) -> str:
    """SHA-256 of all settings that change a number of the rounds done so far."""
    left_out = UNHASHED
    # A longer run has the same first rounds, so its old checkpoints are its own, unless
    # a method goes by the number of rounds.
    if not looks_ahead(experiment):
        left_out = CHANGEABLE
    values = written(experiment)
    # Aggregations were channels: the digests of those runs stay.
    values["channel"] += values.pop("aggregation")
    if steps_by_optimizer(experiment):
        # It was an option of these methods.
        values["hyper"][OPTIMIZER] = values.pop(OPTIMIZER)
    hashed = {
        name: value
        for name, value in values.items()
        if name not in left_out and (name not in LATER or value != LATER[name])
    }
    # Sorted: the order in which settings are declared leaves the digest as it is.
    text = json.dumps(hashed, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def looks_ahead(experiment: Experiment) -> bool:
    """Whether its method goes by how many rounds there will be."""
    from pfljax import algorithms  # here alone: reports read settings without JAX

    factory = algorithms.method(experiment.method.algorithm)
    return bool(registry.given(factory, rounds=experiment.participation.rounds))


def steps_by_optimizer(experiment: Experiment) -> bool:
    """Whether the method itself takes the optimizer of the server."""
    from pfljax import algorithms

    factory = algorithms.method(experiment.method.algorithm)
    return bool(registry.given(factory, server_optimizer=None))


def difference(old: Experiment, new: Experiment) -> list[str]:
    """The settings that differ and change a number, as "name: old -> new"."""
    before = written(old)
    after = written(new)
    alike: set[str] = set()
    if before["algorithm"] == after["algorithm"]:
        # Of one method the options that differ are enough.
        alike = set(dict(before["hyper"].items() & after["hyper"].items()))
    before = named(before, without=alike)
    after = named(after, without=alike)
    return [
        f"{name}: {before[name]} -> {after[name]}"
        for name in before
        if name not in UNHASHED and before[name] != after[name]
    ]
