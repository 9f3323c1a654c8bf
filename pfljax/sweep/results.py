"""What a sweep found: arrays of each run, and one tidy table."""

import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from pfljax.evaluation.metrics import FIGURES, GRID, pick_lambda, summarise
from pfljax.runs import config, folder
from pfljax.runs.folder import FolderError
from pfljax.runs.settings import Experiment
from pfljax.runtime import environment

WHAT = ("round", "judged", "lambda", "split", "metric")  # columns of the tidy table
BY_NAME = ("metrics", "path", "size")  # the fields of Result that are dicts


class Result(NamedTuple):
    """One run: T evaluations of C clients. A client without rows has NaN."""

    values: dict[str, Any]  # what is swept
    round: np.ndarray  # i[T], rounds finished at each evaluation
    train_loss: np.ndarray  # f32[rounds]
    metrics: dict[str, np.ndarray]  # "personal/test/accuracy", ...: f32[T, C]
    path: dict[str, np.ndarray]  # "test/accuracy", ...: f32[C, 11], the last round
    size: dict[str, np.ndarray]  # rows of "test", ...: i32[C]


@dataclass(frozen=True)
class Sweep:
    """The runs of all combinations, in order; the last name changes fastest."""

    experiment: Experiment  # what the runs share
    over: dict[str, list[Any]]
    results: list[Result]

    def stacked(self, name: str) -> np.ndarray:
        """The metric "personal/test/accuracy", ... of all runs, [R, T, C].

        Raises:
          ValueError: the runs differ in the rounds of their evaluations or in their
            clients, or not all have this metric.
        """
        known = set.intersection(*(set(result.metrics) for result in self.results))
        if name not in known:
            names = ", ".join(sorted(known))
            raise ValueError(f"not all runs have the metric {name!r}; all have {names}")
        metrics = [result.metrics[name] for result in self.results]
        kinds = {
            (*result.round.tolist(), values.shape[1])
            for result, values in zip(self.results, metrics, strict=True)
        }
        if len(kinds) > 1:
            raise ValueError(
                "runs differ in the rounds of their evaluations or in their clients, "
                f"so they cannot be stacked; take results[i].metrics[{name!r}]"
            )
        return np.stack(metrics)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The tidy table: figures over clients of each run, round, model and metric.

        Between two endpoints, "judged" is "mixture" and "lambda" a number, or how each
        client's was chosen: on its "validation" or (an "oracle") on its test rows.
        """
        for result in self.results:
            for row in itertools.chain(_of_models(result), _of_mixtures(result)):
                yield result.values | row

    def table(self) -> str:
        """Markdown of the last evaluation: means over clients, ± std over seeds."""
        from pfljax.report import formats, sweeps

        return formats.markdown(sweeps.table([*self.rows()]))


def _of_models(result: Result) -> Iterator[dict[str, Any]]:
    """Rows of the models that stand by themselves, at every evaluation."""
    for name, values in result.metrics.items():
        model, split, metric = name.split("/")
        for at, by_client in zip(result.round, values, strict=True):
            judged = dict(zip(WHAT, (int(at), model, "", split, metric), strict=True))
            yield judged | summarise(by_client, result.size[split], metric)


def _of_mixtures(result: Result) -> Iterator[dict[str, Any]]:
    """Rows of the models between two endpoints, after the last round."""
    at = int(result.round[-1])
    for name, values in result.path.items():
        split, metric = name.split("/")
        by_lambda: dict[Any, np.ndarray] = dict(zip(GRID, values.T, strict=True))
        if split == "test":
            by_lambda |= _chosen(result.path, values)
        for t, by_client in by_lambda.items():
            judged = dict(zip(WHAT, (at, "mixture", t, split, metric), strict=True))
            yield judged | summarise(by_client, result.size[split], metric)


def _chosen(path: Mapping[str, np.ndarray], values: np.ndarray) -> dict[str, Any]:
    """A metric [C, 11] at the lambdas that are chosen, f32[C] by the way to choose."""
    chosen = {}
    if "validation/accuracy" in path:
        chosen["validation"] = pick_lambda(path["validation/accuracy"], values)
    chosen["oracle"] = pick_lambda(path["test/accuracy"], values)
    return chosen


def write_table(path: Path, runs: Sweep) -> None:
    """sweep.csv, whole or not at all; a figure that is not finite is left empty."""
    part = path.with_name(path.name + ".part")
    with open(part, "w", newline="", encoding="utf-8") as file:
        _write_rows(file, runs, header=True)
    part.replace(path)


def add_to_table(path: Path, over: dict[str, list[Any]], result: Result) -> None:
    """Adds one run's rows to sweep.csv, in one write: a kill leaves whole runs."""
    text = io.StringIO(newline="")
    one = Sweep(Experiment(), over, [result])
    _write_rows(text, one, header=not path.exists())
    with open(path, "ab") as file:
        # The text is longer than the buffer of the file, so it is written uncut.
        file.write(text.getvalue().encode())


def _write_rows(file: TextIO, runs: Sweep, *, header: bool) -> None:
    writer = csv.DictWriter(file, [*runs.over, *WHAT, *FIGURES])
    if header:
        writer.writeheader()
    writer.writerows(runs.rows())


def claim(
    path: Path, experiment: Experiment, over: Mapping[str, Sequence]
) -> dict[str, list[Any]]:
    """Writes sweep.json; all values of the folder, those of `over` with them.

    "over" are the values of all calls, "asked" those of the last.

    Raises:
      FolderError: the folder holds the sweep of another experiment or of other names.
    """
    file = path / "sweep.json"
    all_values = {name: list(values) for name, values in over.items()}
    if file.exists():
        before = folder.read_json(file)
        _check_same(path, before, experiment, over)
        for name, values in all_values.items():
            all_values[name] = list(dict.fromkeys([*before["over"][name], *values]))
    about = {
        "experiment": config.to_dict(experiment),
        "over": all_values,
        "asked": over,
        "environment": environment.now(),
    }
    folder.write_json(file, about)
    return all_values


def _check_same(
    path: Path,
    before: Mapping[str, Any],
    experiment: Experiment,
    over: Mapping[str, Sequence],
) -> None:
    """Refuses to go on with a sweep of another experiment or of other names."""
    changes = config.difference(config.from_dict(before["experiment"]), experiment)
    names = list(before["over"])
    if sorted(names) != sorted(over):
        changes.append(f"swept: {', '.join(names)} -> {', '.join(over)}")
    if changes:
        raise FolderError(
            f"{path} holds another sweep ({'; '.join(changes)}); choose another folder"
        )


def write(path: Path, result: Result) -> None:
    """A finished run, whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    arrays = {"round": result.round, "train_loss": result.train_loss}
    for field in BY_NAME:
        for name, array in getattr(result, field).items():
            arrays[f"{field}/{name}"] = array
    folder.write_arrays(path, arrays)


def read(path: Path, values: dict[str, Any]) -> Result:
    """A finished run.

    Raises:
      FolderError: the file is damaged, or of another kind.
    """
    try:
        arrays = folder.read_arrays(path)
    except FolderError as error:
        raise FolderError(f"{error}; remove it, and the sweep runs it again") from None
    fields = {field: {} for field in BY_NAME}
    for key, array in arrays.items():
        field, _, name = key.partition("/")
        if field in fields:
            fields[field][name] = array
    if not fields["metrics"]:
        raise FolderError(f"{path} is no run of this pfljax's sweeps; remove it")
    return Result(
        values=values,
        round=arrays["round"],
        train_loss=arrays["train_loss"],
        **fields,
    )
