"""Tables of numbers over seeds, made from tidy records: for pages, Markdown and LaTeX.

The standard deviation over clients is the population's, that over seeds the sample's.
"""

import math
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from pfljax.evaluation.fairness import DECILES
from pfljax.evaluation.over_clients import DETECTION, FIGURES
from pfljax.report.captions import NOTES
from pfljax.report.curves import default_targets, group_curves, spent_table
from pfljax.report.frames import Frame
from pfljax.report.tidy import ORACLE
from pfljax.runtime.words import count_noun

EMPTY = "–"
INDEX = ["method", "model", "seed"]  # of tables of numbers by seed
SPENT = ["round", "bytes_up", "bytes_down", "clock", "seconds", "diverged"]


def format_number(value: float | None, form: str, scale: float = 1) -> str:
    """value * scale in this format; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return EMPTY
    return format(value * scale, form)


class Column(NamedTuple):
    """A number in tables: its heading and its format."""

    key: str  # a metric, "metric.figure", or what was spent
    title: str
    scale: float = 1  # shown = value * scale
    form: str = ".3f"
    better: int = 0  # 1 if more is better, -1 if less is, 0 for neither
    spread: bool = False  # whether to show the standard deviation over seeds

    def text(self, value: float) -> str:
        """The number as it is shown; a dash for NaN."""
        return format_number(value, self.form, self.scale)


class Table(NamedTuple):
    """A table of text, with the cells (row, column) that are the best."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()
    note: str = ""

    @property
    def caption(self) -> str:
        """The title and the note."""
        return f"{self.title}. {self.note}".rstrip()


def _percent(key: str, title: str, form: str = ".2f", better: int = 1) -> Column:
    return Column(key, f"{title} (%)", 100, form, better)


def _points(key: str, title: str, better: int = 0) -> Column:
    return Column(key, f"{title} (points)", 100, ".2f", better)


ACCURACY = (
    _percent("accuracy", "Accuracy")._replace(spread=True),
    _points("accuracy.std", "Std over clients"),
    _percent("accuracy.weighted", "Weighted by examples"),
    _percent("accuracy.worst10", "Worst 10 % of clients"),
    _percent("accuracy.best10", "Best 10 % of clients"),
    _percent("accuracy.min", "Least"),
    Column("ece", "ECE", better=-1),
    Column("bytes_up", "MB up", 1e-6, ".2f"),
    Column("bytes_down", "MB down", 1e-6, ".2f"),
    Column("clock", "Virtual seconds", form=".1f"),
)
CALIBRATION = (
    _percent("top5", "Top-5 accuracy")._replace(spread=True),
    Column("loss", "Negative log likelihood", better=-1, spread=True),
    Column("brier", "Brier score", better=-1, spread=True),
    Column("entropy", "Entropy", spread=True),
    Column(DETECTION, "Out of distribution (AUROC)", better=1, spread=True),
    Column("ece", "ECE", better=-1, spread=True),
    Column("mce", "MCE", better=-1, spread=True),
    Column("ece_batchwise", "ECE by batch", better=-1, spread=True),
    Column("mce_batchwise", "MCE by batch", better=-1, spread=True),
)
FAIRNESS = (
    # A spread is not ranked: clients that all do badly are alike.
    Column("variance", "Variance (points²)", 1e4, ".1f"),
    _points("iqr", "IQR"),
    _points("range", "Range"),
    Column("gini", "Gini", form=".4f"),
    Column("jain", "Jain", form=".4f"),
    Column("entropy_fairness", "Entropy", form=".4f"),
    Column("cosine_fairness", "Cosine", form=".4f"),
    _points("gain_local", "Gain over local", better=1),
    _percent("worse_than_local", "Worse off than local", ".1f", -1),
    _points("gain_tuned", "Gain over fine-tuned FedAvg", better=1),
    _points("gain_server", "Gain over server", better=1),
    _percent("worse_than_server", "Worse off than server", ".1f", -1),
    *(_percent(f"p{q}", f"P{q}", ".1f") for q in DECILES),
)
UNITS = {  # of what is spent: (title, scale, format)
    "rounds": ("Rounds", 1, ".1f"),
    "plain_rounds": ("Plain rounds", 1, ".1f"),
    "bytes": ("MB", 1e-6, ".2f"),
    "seconds": ("Virtual seconds", 1, ".1f"),
}
SECTIONS = {
    "Accuracy": ACCURACY,
    "Fairness": FAIRNESS,
    "Calibration and loss": CALIBRATION,
}
# Groups of clients with tables of their own.
CLIENTS = ("participants", "never chosen", "unseen", "benign", "malicious")


def detail_tables(
    frame: Frame, targets: Sequence[float], window: int, ranked: bool
) -> dict[str, list[Table]]:
    """The tables of all models by section: accuracy, fairness, calibration, targets."""
    moments = {"last": "the last round"}
    # Where all runs chose their last round, one table stands for both.
    if not frame[frame.chosen.eq(True) & ~frame["last"]].empty:
        moments["chosen"] = "the round chosen on validation data"
    details = {}
    for section, columns in SECTIONS.items():
        details[section] = [
            make_table(
                f"{section} at {text}",
                values_by_seed(frame, moment=moment),
                columns,
                NOTES[section],
                ranked,
            )
            for moment, text in moments.items()
        ]
    others = {"on validation data": values_by_seed(frame, split="validation")}
    for clients in CLIENTS:
        others[f"of clients: {clients}"] = values_by_seed(frame, clients)
    for text, values in others.items():
        title = f"Accuracy at the last round {text}"
        details["Accuracy"].append(make_table(title, values, ACCURACY, "", ranked))
    details["Accuracy"] += group_tables(frame, ranked)
    details["Until a target"] = [target_table(frame, targets, window, ranked)]
    return details


def group_tables(frame: Frame, ranked: bool) -> list[Table]:
    """For each grouping of clients, such as "domain", a column for each group."""
    tables = []
    names = [name for name in frame.clients.unique() if "=" in name]
    for grouping in dict.fromkeys(name.partition("=")[0] for name in names):
        values = values_by_seed(frame)[SPENT]
        columns = []
        for name in names:
            if name.startswith(f"{grouping}="):
                values[name] = values_by_seed(frame, name)["accuracy"]
                columns.append(_percent(name, name.partition("=")[2]))
        title = f"Accuracy at the last round by {grouping}"
        note = "Means over the clients of each group and over seeds."
        tables.append(make_table(title, values, columns, note, ranked))
    return tables


def target_table(
    frame: Frame, targets: Sequence[float], window: int, ranked: bool
) -> Table:
    """The costs until targets; without rows if nothing is known of them."""
    curves = group_curves(frame)
    targets = sorted(set(targets or default_targets(curves, window)))
    values = spent_table(curves, targets, window)
    columns = []
    for target in targets:
        for name, (title, scale, form) in UNITS.items():
            if window == 1 and name == "plain_rounds":
                continue  # the same as the rounds
            title = f"{title} to {100 * target:g} %"
            columns.append(Column(f"{name}_to_{target:g}", title, scale, form, -1))
    columns.append(_percent("area", "Area under the curve"))
    if not keep_known(values, columns):
        return Table("", [], [])
    title = "Until a target"
    successive = "evaluation" if window == 1 else "successive evaluation"
    note = NOTES[title].format(window=count_noun(window, successive))
    return make_table(title, values, columns, note, ranked)


def values_by_seed(
    frame: Frame, clients: str = "all", moment: str = "last", split: str = "test"
) -> Frame:
    """Metrics of each method, model and seed, a column each: "accuracy.std".

    `moment` is "last", or "chosen" for the round chosen on validation data.
    """
    rows = frame[frame[moment] & (frame.clients == clients) & (frame.split == split)]
    wide = rows.pivot(index=INDEX, columns="metric", values=list(FIGURES))
    wide.columns = [m if f == "mean" else f"{m}.{f}" for f, m in wide.columns]
    spent = rows.groupby(INDEX)[SPENT].first()
    order = rows.set_index(INDEX).index.unique()
    return wide.join(spent).reindex(order)


def make_table(
    title: str,
    values: Frame,
    columns: Sequence[Column],
    note: str = "",
    ranked: bool = True,
) -> Table:
    """A row for each method and model, with means over seeds.

    Columns without a number are left out, and equal rows of a method are one.
    """
    columns = keep_known(values, columns)
    models: dict[tuple[str, ...], list[str]] = {}  # by the texts of their row
    lost = set()  # methods of which a run has diverged
    for (method, model), seeds in values.groupby(level=[0, 1], sort=False):
        cells = [_average(seeds[column.key], column) for column in columns]
        rounds = sorted({f"{r:g}" for r in seeds["round"]}, key=float)
        texts = (str(method), *cells, str(len(seeds)), ", ".join(rounds))
        models.setdefault(texts, []).append(str(model))
        if "diverged" in seeds and seeds.diverged.eq(True).any():
            lost.add(str(method))
    rows = [[texts[0], " = ".join(models[texts]), *texts[1:]] for texts in models]
    header = ["Method", "Model", *(c.title for c in columns), "Seeds", "Round"]
    best = {
        (i, j)
        for j, column in enumerate(columns, start=2)
        for i in _find_best(rows, j, column, lost)
    }
    return Table(title, header, rows, frozenset(best if ranked else ()), note)


def keep_known(values: Frame, columns: Sequence[Column]) -> list[Column]:
    """The columns that have a number."""
    return [c for c in columns if c.key in values and values[c.key].notna().any()]


def format_rows(values: Frame, columns: Sequence[Column]) -> list[list[str]]:
    """The numbers of each row as text."""
    rows = values.to_dict("records")
    return [[column.text(row[column.key]) for column in columns] for row in rows]


def _average(values: Any, column: Column) -> str:
    """The mean over seeds, with ± their standard deviation if the column has it."""
    values = values.dropna()
    missing = int((values == math.inf).sum())
    if missing:
        some = "" if missing == len(values) else f" by {missing} of {len(values)} seeds"
        return f"not reached{some}"
    text = column.text(float(values.mean()))
    if column.spread and len(values) > 1:
        text += f" ± {column.text(float(values.std()))}"
    return text


def _find_best(
    rows: Sequence[Sequence[str]], place: int, column: Column, lost: Container[str]
) -> Sequence[int]:
    """The rows of the best number as shown; none if there are not two different ones.

    Neither an oracle, which is chosen on test examples, nor a `lost` method is ranked.
    """
    numbers = {}
    for i, row in enumerate(rows):
        is_number = row[place] != EMPTY and not row[place].startswith("not reached")
        if is_number and not row[1].startswith(ORACLE) and row[0] not in lost:
            numbers[i] = column.better * float(row[place].partition(" ")[0])
    if len(set(numbers.values())) < 2:
        return []
    return [i for i, value in numbers.items() if value == max(numbers.values())]
