"""The runs of a sweep as arrays and as one tidy table, for the tables of studies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pfljax.evaluation.over_clients import FIGURES, GRID, pick_lambda, summarise
from pfljax.report.frames import Frame
from pfljax.runs import result as runs
from pfljax.runs.settings import Experiment
from pfljax.runtime import files
from pfljax.runtime.csv_text import format_csv
from pfljax.sweep import sweep as run_all

# Columns of the table between the values that are swept and the figures.
COLUMNS = ("round", "clock", "evaluated", "clients", "lambda", "split", "metric")
MIXTURE = "mixture/"
QUANTITY = "client/"


class Result(NamedTuple):
    """One run: T evaluations of C clients. A client without examples has NaN."""

    values: dict[str, Any]  # of the settings that are swept
    round: np.ndarray  # i[T], rounds finished at each evaluation
    train_loss: np.ndarray  # f32[rounds]
    metrics: dict[str, np.ndarray]  # "personal/test/accuracy", ...: f32[T, C]
    # Between endpoints, after the last round: "test/accuracy", ...: f32[C, 11], and
    # "test/ensemble/accuracy", ...: f32[C].
    path: dict[str, np.ndarray]
    size: dict[str, np.ndarray]  # the number of examples of "test": i32[C]
    # The method's numbers of each client, such as "tau" of pFedVEM: f32[T, C].
    quantities: Mapping[str, np.ndarray] = MappingProxyType({})


@dataclass(frozen=True)
class Sweep:
    """The runs of all combinations, in order; the last name changes fastest."""

    experiment: Experiment
    over: dict[str, list[Any]]
    results: list[Result]

    def stacked(self, name: str) -> np.ndarray:
        """The metric "personal/test/accuracy", ... of all runs, [R, T, C]."""
        return np.stack([result.metrics[name] for result in self.results])

    def rows(self) -> Iterator[dict[str, Any]]:
        """The figures over clients of each run, round, model and test metric."""
        for result in self.results:
            yield from tidy_rows(result)


def sweep(
    experiment: Experiment, over: Mapping[str, Sequence[Any]], *, out: Path, **more: Any
) -> Sweep:
    """`pfljax.sweep.sweep`, which also writes sweep.csv; a run that fails is an error.

    Raises:
      RuntimeError: a run failed, or another process is running it.
    """
    done = run_all(experiment, over, out=out, **more)
    for folder, reason in done.failed.items():
        raise RuntimeError(f"{folder}: {reason}")
    if done.elsewhere:
        raise RuntimeError(f"{done.elsewhere[0]}: another process is running it")
    made = map(_convert, done.values, done.results)
    found = Sweep(experiment, done.over, list(made))
    columns = [*done.over, *COLUMNS, *FIGURES]
    lines = [[row.get(name) for name in columns] for row in found.rows()]
    files.write_text(Path(out) / "sweep.csv", format_csv([columns, *lines]))
    return found


def read(folder: str | Path) -> Frame:
    """The rows of sweep.csv; what was swept is text."""
    import pandas as pd

    file = Path(folder) / "sweep.csv"
    frame: Frame = pd.read_csv(file, dtype=str, keep_default_na=False)
    numbers = ["clock", *FIGURES]
    frame[numbers] = frame[numbers].replace("", "nan").astype(float)
    frame["round"] = frame["round"].astype(int)
    return frame


def _convert(values: dict[str, Any], run: runs.Result) -> Result:
    arrays = run.clients
    named = {name: a for name, a in arrays.items() if name.count("/") == 2}

    def part(prefix: str) -> dict[str, np.ndarray]:
        return {
            name.removeprefix(prefix): array
            for name, array in arrays.items()
            if name.startswith(prefix) and name != f"{MIXTURE}lambda"
        }

    return Result(
        values=values,
        round=arrays["round"],
        train_loss=np.array([line["train_loss"] for line in run.metrics], np.float32),
        metrics={n: a for n, a in named.items() if not n.startswith(MIXTURE)},
        path=part(MIXTURE),
        size={"test": arrays["test_size"]},
        quantities=part(QUANTITY),
    )


def tidy_rows(result: Result) -> Iterator[dict[str, Any]]:
    """The rows of one run, on test examples."""
    size = result.size["test"]
    for name, values in result.metrics.items():
        model, split, metric = name.split("/")
        if split == "test":
            for round_, by_client in zip(result.round, values, strict=True):
                row = _columns(round_, model, "", metric)
                yield result.values | row | summarise(by_client, size, metric)
    for name, values in result.path.items():
        split, *ensemble, metric = name.split("/")
        if split == "test":
            by_lambda = _by_lambda(result.path, bool(ensemble), values)
            for at, by_client in by_lambda.items():
                row = _columns(result.round[-1], "mixture", at, metric)
                yield result.values | row | summarise(by_client, size, metric)


def _columns(round_: Any, model: str, at: Any, metric: str) -> dict[str, Any]:
    what = {"round": int(round_), "clock": "", "evaluated": model, "clients": "all"}
    return what | {"lambda": at, "split": "test", "metric": metric}


def _by_lambda(
    path: Mapping[str, np.ndarray], ensemble: bool, values: np.ndarray
) -> dict[Any, np.ndarray]:
    """A metric of each client, f32[C], by lambda or by what chooses it."""
    if ensemble:
        return {"ensemble": values}
    by_lambda: dict[Any, np.ndarray] = dict(zip(GRID, values.T, strict=True))
    if "validation/accuracy" in path:
        by_lambda["validation"] = pick_lambda(path["validation/accuracy"], values)
    by_lambda["oracle"] = pick_lambda(path["test/accuracy"], values)
    return by_lambda
