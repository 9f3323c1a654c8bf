"""The settings in config.json, and the differences between two runs."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pfljax.core import factories, requirements
from pfljax.core.components import Component
from pfljax.runs.settings import FIELDS, UNHASHED, Experiment

FORMAT = 3  # of config.json
CHANGEABLE = (*UNHASHED, "rounds")  # by going on
# A store changes no number, but the states of a run are in the one that it began with.
MAY_DIFFER = {*UNHASHED} - {"state_storage"}  # of one run in its folder


def to_dict(experiment: Experiment) -> dict[str, Any]:
    """The settings as JSON types, and the number of the format."""
    return {"format": FORMAT, **to_json(experiment)}


def from_dict(values: Any) -> Experiment:
    """The experiment of a config.json.

    Raises:
      ValueError: it is of another format, or a setting is unknown or wrong.
    """
    if not isinstance(values, Mapping):
        raise ValueError("expected a JSON object with settings by name")
    if values.get("format") != FORMAT:
        raise ValueError(
            f"its format is {values.get('format')!r}, and this pfljax reads format "
            f"{FORMAT}; use the version that wrote it, or run it again"
        )
    settings = {name: value for name, value in values.items() if name != "format"}
    for name in settings:
        requirements.find("setting", FIELDS, name)
    return Experiment(**settings)


def to_json(experiment: Experiment) -> dict[str, Any]:
    """The settings by name, as JSON types."""
    return {name: _to_json(value) for name, value in vars(experiment).items()}


def _to_json(value: Any) -> Any:
    if isinstance(value, Component):
        return str(value)
    if isinstance(value, tuple):
        return [str(choice) for choice in value]
    return value


def digest(experiment: Experiment) -> str:
    """SHA-256 of all settings that change a number of the rounds done so far."""
    # A longer run has the same first rounds, so its old checkpoints are its own, unless
    # a method goes by the number of rounds.
    left_out = UNHASHED if looks_ahead(experiment) else CHANGEABLE
    values = to_json(experiment)
    hashed = {name: values[name] for name in values if name not in left_out}
    text = json.dumps(hashed, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def looks_ahead(experiment: Experiment) -> bool:
    """Whether its method depends on how many rounds there will be."""
    from pfljax import algorithms  # here alone: reports read settings without JAX

    factory = algorithms.method(experiment.algorithm.name)
    return bool(factories.select_context(factory, rounds=experiment.rounds))


def difference(old: Experiment, new: Experiment) -> list[str]:
    """The settings in which two runs of one folder may not differ, but do.

    Each is "name: old -> new".
    """
    before = to_json(old)
    after = to_json(new)
    return [
        f"{name}: {before[name]} -> {after[name]}"
        for name in before
        if name not in MAY_DIFFER and before[name] != after[name]
    ]
