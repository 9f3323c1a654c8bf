"""Groups runs over seeds: those of one configuration are one method."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pfljax.report.runs import Run
from pfljax.runs.config import join_options

# They do not make another method.
OF_A_RUN = (
    "seed",
    "out",
    "baseline",
    "devices",
    "pin_clients",
    "keep_checkpoints",
    "state_storage",
)
# Settings of the problem: between runs that differ in one, no method is the best.
PROBLEM = (
    "dataset", "partition", "clients", "noise", "test", "test_from", "examples",
    "unseen",
)  # fmt: skip


class Group(NamedTuple):
    """The runs of a method, by seed."""

    label: str
    runs: tuple[Run, ...]

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the first run, which differ in seed and folders alone."""
        return self.runs[0].config


def group_runs(runs: Iterable[Run]) -> tuple[Group, ...]:
    """The runs by their settings without the seed, in order of appearance.

    Raises:
      ValueError: two runs have the same settings and seed.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        settings = {k: v for k, v in run.config.items() if k not in OF_A_RUN}
        groups.setdefault(_text(settings), []).append(run)
    for group in groups.values():
        group.sort(key=lambda run: run.seed)
        for a, b in itertools.pairwise(group):
            if a.seed == b.seed:
                raise ValueError(
                    f"{a.folder} and {b.folder} have the same settings and seed "
                    f"{a.seed}; give one of them"
                )
    labels = _unique_labels([group[0] for group in groups.values()])
    return tuple(
        Group(label, tuple(group))
        for label, group in zip(labels, groups.values(), strict=True)
    )


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names whose values are not all equal; seeds and folders aside."""
    names = sorted(set().union(*settings).difference(OF_A_RUN))
    return [n for n in names if len({_text(each.get(n)) for each in settings}) > 1]


def differing_settings(groups: Sequence[Group]) -> list[str]:
    """Settings that tell the groups apart; a method and its options are one."""
    return differing([join_options(group.config) for group in groups])


def differing_problem(groups: Sequence[Group]) -> list[str]:
    """The settings of the problem itself in which the groups differ."""
    return [n for n in differing([g.config for g in groups]) if n in PROBLEM]


def _unique_labels(runs: Sequence[Run]) -> list[str]:
    """Labels; those that runs share are followed by the settings that differ."""
    labels = []
    for run in runs:
        twins = [_with_options(twin) for twin in runs if twin.label == run.label]
        own = _with_options(run)
        names = [n for n in differing(twins) if n not in ("label", "hyper")]
        words = [f"{name}={own.get(name)}" for name in names]
        labels.append(f"{run.label} ({', '.join(words)})" if words else run.label)
    return labels


def _with_options(run: Run) -> dict[str, Any]:
    return run.config | (run.config.get("hyper") or {})


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
