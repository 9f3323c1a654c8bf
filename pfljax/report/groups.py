"""Runs grouped over seeds: those of one config, under a label of their own."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pfljax.report.runs import Run
from pfljax.runs.config import named

# They do not make another method.
UNIQUE_TO_A_RUN = ("seed", "out", "baseline", "devices", "homes", "keep", "store")


class Group(NamedTuple):
    """Runs whose configs differ in seed and folders alone, by seed."""

    label: str
    runs: tuple[Run, ...]


def group_runs(runs: Iterable[Run]) -> tuple[Group, ...]:
    """The runs by config without the seed, in order of appearance, labels made unique.

    Raises:
        ValueError: two runs have the same config and seed.
    """
    by_config: dict[str, list[Run]] = {}
    for run in runs:
        by_config.setdefault(_config_key(run), []).append(run)
    for group in by_config.values():
        group.sort(key=lambda run: run.config["seed"])
        _check_seeds(group)
    firsts = [group[0] for group in by_config.values()]
    labels = _unique_labels(firsts)
    groups = []
    for label, group in zip(labels, by_config.values(), strict=True):
        groups.append(Group(label=label, runs=tuple(group)))
    return tuple(groups)


def differing_keys(runs: Sequence[Run]) -> list[str]:
    """Settings, the seed and the folder aside, in which the runs differ.

    The method is one setting with its options.
    """
    return _differing([named(run.config) for run in runs])


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names whose values are not all equal."""
    names = set().union(*settings).difference(UNIQUE_TO_A_RUN)
    differing = []
    for name in sorted(names):
        values = {_plain(each.get(name)) for each in settings}
        if len(values) > 1:
            differing.append(name)
    return differing


def _plain(value: Any) -> str:
    """A text that is equal for equal JSON values."""
    return json.dumps(value, sort_keys=True)


def _config_key(run: Run) -> str:
    """The config without what tells one seed from another."""
    kept = dict(run.config)
    for name in UNIQUE_TO_A_RUN:
        kept.pop(name, None)
    return _plain(kept)


def _check_seeds(group: Sequence[Run]) -> None:
    """Refuses a seed that is there twice: it would count as two."""
    for a, b in itertools.pairwise(group):
        if a.config["seed"] == b.config["seed"]:
            raise ValueError(
                f"{a.folder} and {b.folder} have the same config and seed "
                f"{a.config['seed']}; give one of them"
            )


def _unique_labels(runs: Sequence[Run]) -> list[str]:
    """Labels; runs that share one are told apart by the config keys that differ."""
    labels = []
    for run in runs:
        twins = [other for other in runs if other.label == run.label]
        # Each option by itself: most of them are the same.
        told = {twin.folder: _with_options(twin.config) for twin in twins}
        differing = [key for key in _differing([*told.values()]) if key != "label"]
        settings = [f"{key}={told[run.folder].get(key)}" for key in differing]
        if settings:
            labels.append(f"{run.label} ({', '.join(settings)})")
        else:
            labels.append(run.label)
    return labels


def _with_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings and the options of the method, each by its name."""
    values = {name: value for name, value in settings.items() if name != "hyper"}
    return values | (settings.get("hyper") or {})
