"""The results of a sweep: arrays of each run, and one tidy table."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pfljax.evaluation.over_clients import FIGURES, GRID, pick_lambda, summarise
from pfljax.runs import config, folder
from pfljax.runs.folder import FolderError
from pfljax.runs.names import special
from pfljax.runs.settings import Experiment, changed_settings
from pfljax.runtime import environment, files
from pfljax.runtime.csv_text import format_csv
from pfljax.simulate import malicious

# Columns of the tidy table between the values that are swept and the figures.
COLUMNS = ("round", "clock", "evaluated", "clients", "lambda", "split", "metric")


class Result(NamedTuple):
    """One run: T evaluations of C clients. A client without examples has NaN."""

    values: dict[str, Any]  # of the settings that are swept
    round: np.ndarray  # i[T], rounds finished at each evaluation
    train_loss: np.ndarray  # f32[rounds]
    metrics: dict[str, np.ndarray]  # "personal/test/accuracy", ...: f32[T, C]
    # Between endpoints, after the last round: "test/accuracy", ...: f32[C, 11], and
    # "test/ensemble/accuracy", ...: f32[C].
    path: dict[str, np.ndarray]
    size: dict[str, np.ndarray]  # the number of examples of "test", ...: i32[C]
    # The method's numbers of each client, such as "tau" of pFedVEM: f32[T, C].
    quantities: Mapping[str, np.ndarray] = MappingProxyType({})
    clock: np.ndarray | None = None  # f64[T], virtual seconds; None without a clock
    malicious: np.ndarray | None = None  # bool[C]; None if all clients are benign


@dataclass(frozen=True)
class Sweep:
    """The runs of all combinations, in order; the last name changes fastest."""

    experiment: Experiment  # the settings that the runs share
    over: dict[str, list[Any]]
    results: list[Result]

    def stacked(self, name: str) -> np.ndarray:
        """The metric "personal/test/accuracy", ... of all runs, [R, T, C].

        Raises:
          ValueError: the runs differ in the rounds of their evaluations or in their
            clients, or not all have this metric.
        """
        metrics_by_run = [set(result.metrics) for result in self.results]
        known = set.intersection(*metrics_by_run)
        if name not in known:
            names = ", ".join(sorted(known))
            raise ValueError(f"not all runs have the metric {name!r}; all have {names}")
        metrics = []
        kinds = set()
        for result in self.results:
            values = result.metrics[name]
            metrics.append(values)
            num_clients = values.shape[1]
            kinds.add((*result.round.tolist(), num_clients))
        # Equal shapes are not enough: index t must be the same round in every run.
        if len(kinds) > 1:
            raise ValueError(
                "runs differ in the rounds of their evaluations or in their clients, "
                f"so they cannot be stacked; take results[i].metrics[{name!r}]"
            )
        return np.stack(metrics)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The tidy table: figures over clients of each run, round, model and metric.

        "evaluated" is the model: "personal", "server", or "mixture" between two
        endpoints. "lambda" is the place of a mixture: a number, or "validation" or
        "oracle" if each client's was chosen on its validation or test examples, or
        "ensemble" for the average over all places. "clients" are "all", and in runs
        with attackers also "benign" and "malicious". "clock" is empty in runs without
        virtual time.
        """
        for result in self.results:
            yield from tidy_rows(result)

    def table(self) -> str:
        """Markdown of the last evaluation: means over clients, ± std over seeds."""
        # Imported here, because most sweeps need no report.
        from pfljax.report import sweeps

        return sweeps.markdown(list(self.rows()))


def _model_rows(result: Result) -> Iterator[dict[str, Any]]:
    """Rows of the personal and the server's models, at every evaluation."""
    groups = {"all": slice(None), **malicious.groups(result.malicious)}
    for name, values in result.metrics.items():
        model, split, metric = name.split("/")
        size = result.size[split]
        evaluations = itertools.product(range(len(values)), groups.items())
        for index, (clients, ids) in evaluations:
            columns = _when(result, index) | {
                "evaluated": model,
                "clients": clients,
                "lambda": "",
                "split": split,
                "metric": metric,
            }
            yield columns | summarise(values[index][ids], size[ids], metric)


def _when(result: Result, index: int) -> dict[str, Any]:
    """The round and the virtual time of the evaluation `index`."""
    clock = result.clock
    time = "" if clock is None else float(clock[index])
    return {"round": int(result.round[index]), "clock": time}


def _mixture_rows(result: Result) -> Iterator[dict[str, Any]]:
    """Rows of the models between two endpoints, after the last round."""
    for name, values in result.path.items():
        split, *ensemble, metric = name.split("/")
        by_lambda = _by_lambda(result.path, split, bool(ensemble), values)
        for at_lambda, by_client in by_lambda.items():
            columns = _when(result, -1) | {
                "evaluated": "mixture",
                "clients": "all",
                "lambda": at_lambda,
                "split": split,
                "metric": metric,
            }
            yield columns | summarise(by_client, result.size[split], metric)


def _by_lambda(
    path: Mapping[str, np.ndarray], split: str, ensemble: bool, values: np.ndarray
) -> dict[Any, np.ndarray]:
    """A metric of each client, f32[C], by lambda."""
    if ensemble:
        return {"ensemble": values}
    by_lambda: dict[Any, np.ndarray] = dict(zip(GRID, values.T, strict=True))
    # On validation examples, which choose it, its metrics would be too good.
    if split == "test":
        by_lambda |= _choose(path, values)
    return by_lambda


def _choose(path: Mapping[str, np.ndarray], values: np.ndarray) -> dict[str, Any]:
    """A metric f32[C] at the lambda of each client, by the examples that choose it."""
    chosen = {}
    if "validation/accuracy" in path:
        chosen["validation"] = pick_lambda(path["validation/accuracy"], values)
    chosen["oracle"] = pick_lambda(path["test/accuracy"], values)
    return chosen


def write_table(
    path: Path, over: dict[str, list[Any]], results: Sequence[Result]
) -> None:
    """Writes sweep.csv atomically; a figure that is not finite is left empty."""
    files.write_text(path, _rows_text(over, results, header=True))


def add_to_table(path: Path, over: dict[str, list[Any]], result: Result) -> None:
    """Appends the rows of one run to sweep.csv in one write."""
    text = _rows_text(over, [result], header=not path.exists())
    with open(path, "ab") as file:
        # The text is longer than the buffer of the file: it is written in one piece.
        file.write(text.encode())


def _rows_text(
    over: dict[str, list[Any]], results: Sequence[Result], *, header: bool
) -> str:
    columns = [*over, *COLUMNS, *FIGURES]
    lines: list[Sequence[Any]] = [columns] if header else []
    for result in results:
        lines += [[row.get(name) for name in columns] for row in tidy_rows(result)]
    return format_csv(lines)


def tidy_rows(result: Result) -> Iterator[dict[str, Any]]:
    """The rows of one run in the tidy table of `Sweep.rows`."""
    for row in itertools.chain(_model_rows(result), _mixture_rows(result)):
        yield result.values | row


def default_folder(experiment: Experiment, over: Mapping[str, Sequence]) -> str:
    """The folder of a sweep without `out`: by its names and settings not at default."""
    dataset = experiment.dataset.name
    plain = f"runs/{dataset}-{experiment.algorithm.name}-sweep"
    swept = ",".join(sorted(over))
    fixed = changed_settings(experiment)
    unswept = {name: fixed[name] for name in fixed if name not in over}
    return special(f"{plain}-{swept}", unswept)


def claim(
    path: Path, experiment: Experiment, over: Mapping[str, Sequence]
) -> dict[str, list[Any]]:
    """Writes sweep.json; returns the values of all sweeps in the folder, and of `over`.

    In the file, "over" has the values of all calls, and "asked" those of the last.

    Raises:
      FolderError: the folder holds the sweep of another experiment or of other names.
    """
    file = path / "sweep.json"
    all_values = {name: list(values) for name, values in over.items()}
    if file.exists():
        before = folder.read_json(file)
        _check_same(file, before, experiment, over)
        for name, values in all_values.items():
            joined = [*before["over"][name], *values]
            all_values[name] = list(dict.fromkeys(joined))
    about = {
        "experiment": config.to_dict(experiment),
        "over": all_values,
        "asked": over,
        "environment": environment.now(),
    }
    folder.write_json(file, about)
    return all_values


def _check_same(
    file: Path,
    before: Mapping[str, Any],
    experiment: Experiment,
    over: Mapping[str, Sequence],
) -> None:
    """Refuses to add to a sweep of another experiment or of other names."""
    try:
        old = config.from_dict(before["experiment"])
    except ValueError as error:
        raise FolderError(f"{file}: {error}") from None
    changes = config.difference(old, experiment)
    names = list(before["over"])
    # The order of the names may differ: it makes no other runs.
    if sorted(names) != sorted(over):
        names_before = ", ".join(names)
        names_now = ", ".join(over)
        changes.append(f"swept: {names_before} -> {names_now}")
    if changes:
        raise FolderError(
            f"{file.parent} holds another sweep ({'; '.join(changes)}); "
            "choose another folder"
        )
