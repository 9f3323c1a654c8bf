"""Runs grouped over seeds: those of one config, under a label of their own."""

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pfljax.report.runs import Run

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
    """Config keys, the seed and the folder aside, in which the runs differ."""
    names: set[str] = set()
    for run in runs:
        names.update(run.config)
    differing = []
    for name in sorted(names.difference(UNIQUE_TO_A_RUN)):
        values = {_plain(run.config.get(name)) for run in runs}
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
        differing = [key for key in differing_keys(twins) if key != "label"]
        settings = [f"{key}={_short(run.config.get(key))}" for key in differing]
        if settings:
            labels.append(f"{run.label} ({', '.join(settings)})")
        else:
            labels.append(run.label)
    return labels


def _short(value: Any) -> str:
    """A config value in few characters."""
    if not isinstance(value, dict):
        return str(value)
    words = [f"{name}={option}" for name, option in sorted(value.items())]
    return " ".join(words)
