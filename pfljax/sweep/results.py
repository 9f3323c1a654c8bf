"""The results of a sweep, and its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax.runs import config, folder
from pfljax.runs.folder import FolderError
from pfljax.runs.names import special
from pfljax.runs.result import Result
from pfljax.runs.settings import Experiment, changed_settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE = "sweep.json"


@dataclass(frozen=True)
class Sweep:
    """The finished runs of all combinations, in order; the last name changes fastest.

    `values[i]` are the swept values of `results[i]`. A run that failed, or that another
    process is running, is not among them.
    """

    folder: Path
    experiment: Experiment  # the settings that the runs share
    over: dict[str, list[Any]]
    values: list[dict[str, Any]]
    results: list[Result]
    failed: dict[str, str] = field(default_factory=dict)  # the reason, by run folder
    elsewhere: list[str] = field(default_factory=list)  # folders of other processes

    def stacked(self, name: str) -> np.ndarray:
        """The metric "personal/test/accuracy", ... of all runs, [R, T, C].

        Raises:
          ValueError: the runs differ in the rounds of their evaluations or in their
            clients, or not all have this metric.
        """
        if not self.results:
            raise ValueError(f"no run of {self.folder} is finished")
        known = set.intersection(*(set(result.clients) for result in self.results))
        if name not in known:
            names = ", ".join(sorted(known))
            raise ValueError(f"not all runs have the metric {name!r}; all have {names}")
        # Equal shapes are not enough: index t must be the same round in every run.
        kinds = {
            (*result.clients["round"].tolist(), result.clients[name].shape[-1])
            for result in self.results
        }
        if len(kinds) > 1:
            raise ValueError(
                "runs differ in the rounds of their evaluations or in their clients, "
                f"so they cannot be stacked; take results[i].clients[{name!r}]"
            )
        return np.stack([result.clients[name] for result in self.results])

    def table(self) -> str:
        """Markdown of the last evaluation: means over clients, ± std over seeds."""
        # Imported here, because most sweeps need no report.
        from pfljax.report import accuracy_table

        return accuracy_table(self.results)

    def figures(self) -> "dict[str, Figure]":
        """The figures of its report, such as "accuracy" over the swept number."""
        from pfljax.report import sweep_figures

        return sweep_figures(self.results, self.over)


def default_folder(experiment: Experiment, over: Mapping[str, Sequence]) -> str:
    """The folder of a sweep without `out`: by its names and settings not at default."""
    data, method = experiment.dataset.short_name, experiment.algorithm.short_name
    plain = f"runs/{data}-{method}-sweep"
    swept = ",".join(sorted(map(str, over)))
    fixed = changed_settings(experiment)
    unswept = {name: fixed[name] for name in fixed if name not in over}
    return special(f"{plain}-{swept}", unswept)


def claim(path: Path, experiment: Experiment, over: Mapping[str, Sequence]) -> None:
    """Writes sweep.json: the experiment, and the values of all sweeps in the folder.

    Raises:
      FolderError: the folder holds the sweep of another experiment or of other names.
    """
    file = path / FILE
    with folder.lock(path, "sweep"):
        all_values = {name: list(values) for name, values in over.items()}
        if file.exists():
            before = folder.read_json(file)
            _check_same(file, before, experiment, over)
            for name, values in all_values.items():
                joined = [*before["over"][name], *values]
                all_values[name] = list(dict.fromkeys(joined))
        about = {"experiment": config.to_dict(experiment), "over": all_values}
        folder.write_json(file, about)


def _check_same(
    file: Path,
    before: Mapping[str, Any],
    experiment: Experiment,
    over: Mapping[str, Sequence],
) -> None:
    """Refuses to add to a sweep of another experiment or of other names."""
    names = list(before["over"])
    # The order of the names may differ: it makes no other runs.
    if sorted(names) != sorted(over):
        raise FolderError(
            f"{file.parent} holds a sweep over {', '.join(names)}, and not over "
            f"{', '.join(over)}; choose another --out"
        )
    try:
        old = config.from_dict(before["experiment"])
    except ValueError as error:
        raise FolderError(f"{file}: {error}") from None
    # Each run says whether it may have other rounds.
    changes = config.difference(old.replace(rounds=experiment.rounds), experiment)
    if changes:
        raise FolderError(
            f"{file.parent} holds another sweep ({'; '.join(changes)}); "
            "choose another --out"
        )
