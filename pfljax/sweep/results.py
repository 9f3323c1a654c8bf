"""What a sweep found: arrays of each run, and one tidy table."""

import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TextIO

import numpy as np

from pfljax.evaluation.over_clients import FIGURES, GRID, pick_lambda, summarise
from pfljax.runs import config, folder
from pfljax.runs.folder import FolderError
from pfljax.runs.names import special
from pfljax.runs.settings import Experiment, differing
from pfljax.runtime import environment, files
from pfljax.simulate import malicious

# Columns of the tidy table: when, in virtual seconds too, and of what and whom.
WHAT = ("round", "clock", "judged", "clients", "lambda", "split", "metric")
ALL = "all"  # of the clients


class Result(NamedTuple):
    """One run: T evaluations of C clients. A client without rows has NaN."""

    values: dict[str, Any]  # what is swept
    round: np.ndarray  # i[T], rounds finished at each evaluation
    train_loss: np.ndarray  # f32[rounds]
    metrics: dict[str, np.ndarray]  # "personal/test/accuracy", ...: f32[T, C]
    # "test/accuracy", ...: f32[C, 11]; "test/ensemble/accuracy", ...: f32[C]; at last
    path: dict[str, np.ndarray]
    size: dict[str, np.ndarray]  # rows of "test", ...: i32[C]
    # What the method tells of each client, as "tau" of pFedVEM: f32[T, C].
    quantities: Mapping[str, np.ndarray] = MappingProxyType({})
    clock: np.ndarray | None = None  # f64[T], virtual seconds; None without a clock
    malicious: np.ndarray | None = None  # bool[C]; None where all are benign


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
        # Equal shapes are not enough: row t must be the same round of each run.
        if len(kinds) > 1:
            raise ValueError(
                "runs differ in the rounds of their evaluations or in their clients, "
                f"so they cannot be stacked; take results[i].metrics[{name!r}]"
            )
        return np.stack(metrics)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The tidy table: figures over clients of each run, round, model and metric.

        Between two endpoints, "judged" is "mixture" and "lambda" a number, or how each
        client's was chosen: on its "validation" or (an "oracle") on its test rows; or
        it is "ensemble", of all of them. "clients" are "all", and where some attack
        "benign" and "malicious" as well. "clock" is empty without virtual seconds.
        """
        for result in self.results:
            rows = itertools.chain(_model_rows(result), _mixture_rows(result))
            for row in rows:
                # What is swept stands in the first columns.
                yield result.values | row

    def table(self) -> str:
        """Markdown of the last evaluation: means over clients, ± std over seeds."""
        # Here, for a sweep needs no report.
        from pfljax.report import sweeps

        return sweeps.markdown(list(self.rows()))


def _model_rows(result: Result) -> Iterator[dict[str, Any]]:
    """Rows of the models that stand by themselves, at every evaluation."""
    whose = {ALL: slice(None), **malicious.groups(result.malicious)}
    for name, values in result.metrics.items():
        model, split, metric = name.split("/")
        size = result.size[split]
        evaluated = itertools.product(range(len(values)), whose.items())
        for index, (clients, ids) in evaluated:
            what = _what(
                result,
                index,
                judged=model,
                clients=clients,
                at_lambda="",
                split=split,
                metric=metric,
            )
            yield what | summarise(values[index][ids], size[ids], metric)


def _what(
    result: Result,
    index: int,
    *,
    judged: str,
    at_lambda: Any,
    split: str,
    metric: str,
    clients: str = ALL,
) -> dict[str, Any]:
    """The columns `WHAT` of a row of the evaluation `index`."""
    clock = result.clock
    return {
        "round": int(result.round[index]),
        "clock": "" if clock is None else float(clock[index]),
        "judged": judged,
        "clients": clients,
        "lambda": at_lambda,
        "split": split,
        "metric": metric,
    }


def _mixture_rows(result: Result) -> Iterator[dict[str, Any]]:
    """Rows of the models between two endpoints, after the last round."""
    for name, values in result.path.items():
        split, *ensemble, metric = name.split("/")
        by_lambda = _by_lambda(result.path, split, bool(ensemble), values)
        for at_lambda, by_client in by_lambda.items():
            what = _what(
                result,
                -1,
                judged="mixture",
                at_lambda=at_lambda,
                split=split,
                metric=metric,
            )
            yield what | summarise(by_client, result.size[split], metric)


def _by_lambda(
    path: Mapping[str, np.ndarray], split: str, ensemble: bool, values: np.ndarray
) -> dict[Any, np.ndarray]:
    """A metric of each client, f32[C], by lambda."""
    if ensemble:
        return {"ensemble": values}
    by_lambda: dict[Any, np.ndarray] = dict(zip(GRID, values.T, strict=True))
    # On validation rows a lambda chosen there would judge itself.
    if split == "test":
        by_lambda |= _choose(path, values)
    return by_lambda


def _choose(path: Mapping[str, np.ndarray], values: np.ndarray) -> dict[str, Any]:
    """A metric [C, 11] at the lambdas that are chosen, f32[C] by the way to choose."""
    chosen = {}
    if "validation/accuracy" in path:
        chosen["validation"] = pick_lambda(path["validation/accuracy"], values)
    chosen["oracle"] = pick_lambda(path["test/accuracy"], values)
    return chosen


def write_table(path: Path, runs: Sweep) -> None:
    """sweep.csv, whole or not at all; a figure that is not finite is left empty."""
    with (
        files.whole(path) as part,
        open(part, "w", newline="", encoding="utf-8") as file,
    ):
        _write_rows(file, runs, header=True)


def add_to_table(path: Path, over: dict[str, list[Any]], result: Result) -> None:
    """Adds one run's rows to sweep.csv, in one write: a kill leaves whole runs."""
    text = io.StringIO(newline="")
    # The table names no setting of the experiment, so any one will do.
    one = Sweep(
        experiment=Experiment(),
        over=over,
        results=[result],
    )
    _write_rows(text, one, header=not path.exists())
    rows = text.getvalue().encode()
    with open(path, "ab") as file:
        # The text is longer than the buffer of the file, so it is written uncut.
        file.write(rows)


def _write_rows(file: TextIO, runs: Sweep, *, header: bool) -> None:
    columns = [*runs.over, *WHAT, *FIGURES]
    writer = csv.DictWriter(file, columns)
    if header:
        writer.writeheader()
    writer.writerows(runs.rows())


def default_folder(experiment: Experiment, over: Mapping[str, Sequence]) -> str:
    """The folder of a sweep whose `out` is not given, by what is swept and special."""
    dataset = experiment.dataset.name
    plain = f"runs/{dataset}-{experiment.algorithm.name}-sweep"
    swept = ",".join(sorted(over))
    fixed = differing(experiment)
    # What is swept has no value of the experiment's.
    unswept = {name: fixed[name] for name in fixed if name not in over}
    return special(f"{plain}-{swept}", unswept)


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
        _check_same(file, before, experiment, over)
        for name, values in all_values.items():
            joined = [*before["over"][name], *values]
            # A dict keeps their order; a set would not.
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
    """Refuses to go on with a sweep of another experiment or of other names."""
    try:
        old = config.from_dict(before["experiment"])
    except ValueError as error:
        raise FolderError(f"{file}: {error}") from None
    changes = config.difference(old, experiment)
    names = list(before["over"])
    # Their order may differ: it orders the table, and makes no other run.
    if sorted(names) != sorted(over):
        names_before = ", ".join(names)
        names_now = ", ".join(over)
        changes.append(f"swept: {names_before} -> {names_now}")
    if changes:
        raise FolderError(
            f"{file.parent} holds another sweep ({'; '.join(changes)}); "
            "choose another folder"
        )
