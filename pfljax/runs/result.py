"""The result of a finished run, such as `result.personal.test.accuracy`.

Evaluation   of a round: `personal` and `server`, each a `Model`
Model        `test` and, if there are validation examples, `validation`, each `Metrics`
Metrics      `accuracy`, `loss`, ...: means over clients, and `figures` with the spread
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.evaluation.over_clients import headline
from pfljax.runs import folder as folder_files
from pfljax.runs import log
from pfljax.runs.folder import FolderError
from pfljax.runs.log import NEWEST
from pfljax.runs.settings import Experiment
from pfljax.runtime.documents import damage_error
from pfljax.runtime.terminal import printable

Figures = Mapping[str, Mapping[str, float | None]]  # over clients, by metric
Records = Sequence[Mapping[str, Any]]


class Metrics:
    """Means over clients of the metrics of a model; NaN for a mean that is not finite.

    `figures` also has std, weighted, worst10, best10, min and max of each metric.
    The names are those of `pfljax list metrics`. Those of classes are declared here;
    `auroc` exists only with out-of-distribution examples.
    """

    accuracy: float
    top5: float
    loss: float
    entropy: float
    brier: float
    ece: float
    mce: float
    ece_batchwise: float
    mce_batchwise: float
    auroc: float

    def __init__(self, figures: Figures) -> None:
        self.figures = figures
        for name, each in figures.items():
            setattr(self, name, _number(each["mean"]))

    def __repr__(self) -> str:
        means = [f"{name} {getattr(self, name):.4g}" for name in self.figures]
        return f"Metrics({', '.join(means)})"


class Model:
    """The metrics of a model on test examples and on validation examples, if any."""

    test: Metrics
    validation: Metrics

    def __init__(self, splits: Mapping[str, Figures]) -> None:
        for name, by_metric in splits.items():
            setattr(self, name, Metrics(by_metric))

    def __repr__(self) -> str:
        return _table({"": self})


class Evaluation:
    """The evaluation after a round.

    `personal` is the model that each client uses, and `server` the server's model, if
    the method has one, both after the newest broadcast. Means are over all clients;
    `of("unseen")` is the same over another group. `records` are those of summary.json.
    """

    personal: Model
    server: Model

    def __init__(
        self, round: int, records: Records, clients: str = "all", when: str = NEWEST
    ) -> None:
        self.round = round
        self.records = records
        for name, splits in figures(records, clients, when).items():
            setattr(self, name, Model(splits))

    def of(self, clients: str = "all", when: str = NEWEST) -> "Evaluation":
        """The same over a group of clients, or of models "after local training".

        Raises:
          ValueError: there is no such evaluation; the message says which there are.
        """
        known = {(each["clients"], each["when"]) for each in self.records}
        if (clients, when) not in known:
            names = ", ".join(map(repr, sorted(known)))
            raise ValueError(f"there is no {(clients, when)!r}; known: {names}")
        return Evaluation(self.round, self.records, clients, when)

    def __repr__(self) -> str:
        return f"round {self.round}\n{_table(self.models())}"

    def models(self) -> dict[str, Model]:
        """The models that were evaluated, by name."""
        return {name: m for name, m in vars(self).items() if isinstance(m, Model)}


class Result:
    """A finished run.

    `last` is the evaluation after the last round; its models are also attributes of the
    result, as in `result.personal.test.accuracy`. `best` is the evaluation of the round
    with the best metric on validation examples, if there are any. `summary` is
    summary.json. The other files are read when an attribute needs them.
    """

    best: Evaluation
    personal: Model
    server: Model

    def __init__(self, folder: Path, summary: Mapping[str, Any]) -> None:
        self.folder = folder
        self.summary = summary
        self.rounds: int = summary["rounds"]
        self.last = read_line(summary["last"])
        for name, model in self.last.models().items():
            setattr(self, name, model)
        if summary.get("chosen_on_validation") is not None:
            self.best = read_line(summary["chosen_on_validation"])

    @cached_property
    def experiment(self) -> Experiment:
        """The settings."""
        return folder_files.read_config(self.folder)

    @cached_property
    def label(self) -> str:
        """The label of the settings, or else the method's name."""
        return self.experiment.label or self.experiment.algorithm.short_name

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, devices, the width, seconds of training, and the peak of memory."""
        return folder_files.read_json(self.folder / "environment.json")

    @cached_property
    def partition(self) -> dict[str, Any]:
        """The clients: their sizes, classes and origin."""
        manifest = folder_files.read_partition(self.folder)
        if not manifest:
            raise FolderError(f"{self.folder}/partition.npz is missing; restore it")
        return manifest

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, one for each round."""
        path = self.folder / "metrics.jsonl"
        lines = log.read(path, self.rounds)
        if len(lines) < self.rounds:
            raise damage_error(path, f"it has {len(lines)} of {self.rounds} rounds")
        return lines

    @cached_property
    def clients(self) -> dict[str, np.ndarray]:
        """Metrics of each client, f32[T, C], by name: "personal/test/accuracy"..."""
        path = self.folder / "clients.npz"
        arrays = folder_files.read_arrays(path)
        if not arrays:
            raise damage_error(path, "it has no arrays")
        return arrays

    def frame(self) -> Any:
        """The metrics of each client as a tidy `pandas.DataFrame`.

        It has a row for each round, client, model, split and metric, in the columns of
        these names, `unseen` for clients that are held out, and `value`. A client has
        its name if the data have names, and else its number in the partition. The
        model "trained" is that of a client after its own local training.

        Raises:
          FileError: clients.npz or partition.npz is missing or damaged.
        """
        import pandas as pd  # here: it takes half a second

        rounds = self.clients["round"]
        parts = []
        for name, values in self.clients.items():
            group, _, path = name.rpartition(":")
            model, *keys = path.split("/")
            if model == "mixture" or len(keys) != 2:  # of no round, or no metric
                continue
            manifest = self.partition[group] if group else self.partition
            clients = manifest.get("client_names") or manifest["clients"]
            columns = {
                "round": np.repeat(rounds, len(clients)),
                "client": np.tile(clients, len(rounds)),
                "unseen": bool(group),
                "model": model,
                "split": keys[0],
                "metric": keys[1],
                "value": values.ravel(),
            }
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts, ignore_index=True)

    def __repr__(self) -> str:
        label = printable(str(self.summary.get("label") or self.folder.name))
        head = f"{label}, seed {self.summary.get('seed')}, {self.rounds} rounds"
        if "best" in vars(self):
            head += f"; best on validation examples: round {self.best.round}"
        return f"{head}\n{_table(self.last.models())}"


def result(folder: str | Path) -> Result:
    """Reads the result of the finished run in a folder, as `run` returns it.

    Raises:
      FolderError: the run is not finished, or the folder is not that of a run.
      FileError: its summary.json is damaged.
    """
    path = Path(folder)
    if not (path / "summary.json").exists():
        folder_files.read_config(path)  # raises an error if it is not a run
        raise FolderError(f"{path} is not finished; resume it: pfljax resume {path}")
    return Result(path, folder_files.read_json(path / "summary.json"))


def read_line(line: Mapping[str, Any]) -> Evaluation:
    """The evaluation of a line of metrics.jsonl, or of summary.json."""
    return Evaluation(line["round"], line["evaluations"])


def figures(
    records: Records, clients: str = "all", when: str = NEWEST
) -> dict[str, dict[str, Figures]]:
    """The figures over a group of clients, by model and split."""
    by_model: dict[str, dict[str, Figures]] = {}
    for record in records:
        if record["clients"] == clients and record["when"] == when:
            by_split = by_model.setdefault(record["model"], {})
            by_split[record["split"]] = record["metrics"]
    return by_model


def _number(mean: float | None) -> float:
    """A mean of summary.json, where None stands for a number that is not finite."""
    return math.nan if mean is None else mean


def _table(models: Mapping[str, Model]) -> str:
    """A table of the accuracy, its spread and the loss of each model and split."""
    first = next(iter(models.values())).test
    lead = headline(first.figures)
    table: list[tuple[str, ...]] = [
        ("model", "examples", lead, "std", "worst10", "loss")
    ]
    for name, model in models.items():
        for split, metrics in vars(model).items():
            spread = metrics.figures[lead]
            numbers = (
                getattr(metrics, lead),
                _number(spread.get("std")),
                _number(spread.get("worst10")),
                metrics.loss,
            )
            table.append((name, split, *(f"{each:.4f}" for each in numbers)))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [word.ljust(width) for word, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
