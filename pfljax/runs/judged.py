"""An evaluation by name: `evaluation.personal.test.accuracy`.

Evaluation   of a round: `personal` and `server`, each a
Model        on rows: `test` and, if any, `validation`, each
Metrics      `accuracy`, `loss`, ...: means over clients, and `figures` with the spread

`of_line` makes one of a line of the log. Whoever asks for what is not there gets an
AttributeError that says what is.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pfljax.runs.named_fields import assign, refuse

Figures = Mapping[str, Mapping[str, float | None]]  # over clients, by metric
Records = Sequence[Mapping[str, Any]]
NEWEST = "after the newest broadcast"
COLUMNS = ("accuracy", "std", "worst10", "loss")  # of the table


# Not compared by their fields: some of these may not be there.
@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)
class Metrics:
    """Of a model on the rows of a split: the mean over clients of each metric.

    NaN where it is not finite. `figures` has more than the mean: std, weighted,
    worst10, best10, min, max.
    """

    figures: Figures
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
        assign(self, {"figures": figures})
        assign(self, {name: _number(each["mean"]) for name, each in figures.items()})

    def __repr__(self) -> str:
        means = [f"{name} {getattr(self, name):.4g}" for name in self.figures]
        return f"Metrics({', '.join(means)})"

    if not TYPE_CHECKING:  # a type checker is to refuse other names
        __getattr__ = refuse


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)
class Model:
    """Of a model: its metrics on test rows and, if any, on validation rows."""

    test: Metrics
    validation: Metrics

    def __init__(self, splits: Mapping[str, Figures]) -> None:
        assign(self, {name: Metrics(figures) for name, figures in splits.items()})

    def __repr__(self) -> str:
        return table({"": self})

    if not TYPE_CHECKING:
        __getattr__ = refuse


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)
class Evaluation:
    """All that was judged after a round.

    `personal` is the model that each client uses, `server` the server's one model, both
    after the newest broadcast; means are over all clients. `of("unseen")` is the same
    over another group. `records` are those of summary.json.
    """

    round: int
    records: Records
    personal: Model
    server: Model

    def __init__(
        self,
        round: int,
        records: Records,
        clients: str = "all",
        when: str = NEWEST,
    ) -> None:
        assign(self, {"round": round, "records": records})
        by_model = figures(records, clients, when)
        assign(self, {name: Model(splits) for name, splits in by_model.items()})

    def of(self, clients: str = "all", when: str = NEWEST) -> "Evaluation":
        """The same over a group of clients, or of models "after local training".

        Raises:
          ValueError: nothing was judged of these; the message says of what.
        """
        if not figures(self.records, clients, when):
            judged = {(each["clients"], each["when"]) for each in self.records}
            known = ", ".join(map(repr, sorted(judged)))
            raise ValueError(f"nothing was judged of {(clients, when)}; known: {known}")
        return Evaluation(self.round, self.records, clients, when)

    def __repr__(self) -> str:
        return f"round {self.round}\n{table(self.models())}"

    def models(self) -> dict[str, Model]:
        """Those that were judged, by name."""
        return {name: m for name, m in vars(self).items() if isinstance(m, Model)}

    if not TYPE_CHECKING:
        __getattr__ = refuse


def of_line(line: Mapping[str, Any]) -> Evaluation:
    """The evaluation of a line of metrics.jsonl, or of summary.json."""
    return Evaluation(line["round"], line["evaluations"])


def figures(
    records: Records, clients: str = "all", when: str = NEWEST
) -> dict[str, dict[str, Figures]]:
    """Figures over these clients by model and split."""
    by_model: dict[str, dict[str, Figures]] = {}
    for record in records:
        # Folders of before there were several moments have one.
        if record["clients"] == clients and record.get("when", NEWEST) == when:
            by_split = by_model.setdefault(record["model"], {})
            by_split[record["split"]] = record["metrics"]
    return by_model


def _number(mean: float | None) -> float:
    """A mean of summary.json, which has None for what is not finite."""
    return math.nan if mean is None else mean


def table(models: Mapping[str, Model]) -> str:
    """A row a model and split: mean, std and worst tenth of the accuracy, the loss."""
    rows: list[tuple[str, ...]] = [("model", "rows", *COLUMNS)]
    for name, model in models.items():
        for split, metrics in vars(model).items():
            accuracy = metrics.figures["accuracy"]
            numbers = [
                metrics.accuracy,
                accuracy.get("std"),
                accuracy.get("worst10"),
                metrics.loss,
            ]
            rows.append((name, split, *(f"{_number(each):.4f}" for each in numbers)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_row(row, widths) for row in rows)


def _row(words: Iterable[str], widths: Sequence[int]) -> str:
    cells = [word.ljust(width) for word, width in zip(words, widths, strict=True)]
    return "  ".join(cells).rstrip()
