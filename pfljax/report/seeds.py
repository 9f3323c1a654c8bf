"""Groups runs over seeds: the runs of one configuration are one method."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pfljax.runs.config import to_json
from pfljax.runs.result import Result
from pfljax.runs.settings import DATA_SETTINGS, HELP, Experiment

# They make no other method.
OF_A_RUN = {*HELP["Machine"], *HELP["Output"]} - {"label"}


class Group(NamedTuple):
    """The runs of a method, by seed."""

    label: str
    runs: tuple[Result, ...]

    @property
    def experiment(self) -> Experiment:
        """The settings of the first run, which differ in seed and folders alone."""
        return self.runs[0].experiment


def group_runs(runs: Iterable[Result]) -> tuple[Group, ...]:
    """The runs by their settings without the seed, in order of appearance.

    Raises:
      ValueError: two runs have the same settings and seed.
    """
    groups: dict[str, list[Result]] = {}
    for run in runs:
        settings = to_json(run.experiment)
        shared = {name: settings[name] for name in settings if name not in OF_A_RUN}
        groups.setdefault(_text(shared), []).append(run)
    for group in groups.values():
        group.sort(key=lambda run: run.experiment.seed)
        for a, b in itertools.pairwise(group):
            if a.experiment.seed == b.experiment.seed:
                raise ValueError(
                    f"{a.folder} and {b.folder} have the same settings and seed "
                    f"{a.experiment.seed}; give one of them"
                )
    first_runs = [group[0] for group in groups.values()]
    return tuple(
        Group(_unique_label(run, first_runs), tuple(group))
        for run, group in zip(first_runs, groups.values(), strict=True)
    )


def differing_settings(groups: Sequence[Group]) -> list[str]:
    """The settings that differ between groups; a method and its options are one."""
    return _differing([to_json(group.experiment) for group in groups])


def differing_problem(groups: Sequence[Group]) -> list[str]:
    """The settings of the data that differ: no method is then the best."""
    return [name for name in differing_settings(groups) if name in DATA_SETTINGS]


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names whose values are not all equal; seeds and folders aside."""
    names = sorted(set().union(*settings).difference(OF_A_RUN))
    return [n for n in names if len({_text(each.get(n)) for each in settings}) > 1]


def _unique_label(run: Result, runs: Sequence[Result]) -> str:
    """The label; one that runs share is followed by the settings that differ."""
    names = _differing([_options(twin) for twin in runs if twin.label == run.label])
    words = [f"{name}={_options(run).get(name)}" for name in names if name != "label"]
    return f"{run.label} ({', '.join(words)})" if words else run.label


def _options(run: Result) -> dict[str, Any]:
    """The settings, with the options of the method beside them."""
    method = run.experiment.algorithm
    return to_json(run.experiment) | {"algorithm": method.name, **method.options}


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
