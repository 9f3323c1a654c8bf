"""Tables of numbers over seeds, made from tidy records: for pages, Markdown and LaTeX.

The standard deviation over clients is the population's, that over seeds the sample's.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from pfljax.evaluation.fairness import DECILES
from pfljax.evaluation.over_clients import DETECTION, FIGURES
from pfljax.report.captions import NOTES
from pfljax.report.curves import default_targets, group_curves, spent_table
from pfljax.report.frames import Frame
from pfljax.report.lead import EMPTY, Lead, format_number, make_lead, read_lead
from pfljax.report.tidy import ORACLE
from pfljax.runtime.words import count_noun

INDEX = ["method", "model", "seed"]  # of tables of numbers by seed
SPENT = ["round", "bytes_up", "bytes_down", "clock", "seconds", "diverged"]


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


def _value(lead: Lead, key: str, title: str) -> Column:
    """The metric itself, in a group or a figure."""
    unit = " (%)" if lead.is_share else ""
    return Column(key, f"{title}{unit}", lead.scale, lead.form, lead.sign)


def _difference(lead: Lead, key: str, title: str, better: int = 0) -> Column:
    """A distance between two values of the metric."""
    unit = " (points)" if lead.is_share else ""
    return Column(key, f"{title}{unit}", lead.scale, lead.form, better)


def list_columns(lead: Lead) -> tuple[Column, ...]:
    """The columns of the metric that leads."""
    worst = ("min", "Least") if lead.sign > 0 else ("max", "Greatest")
    return (
        _value(lead, lead.name, lead.heading)._replace(spread=True),
        _difference(lead, f"{lead.name}.std", "Std over clients"),
        _value(lead, f"{lead.name}.weighted", "Weighted by examples"),
        _value(lead, f"{lead.name}.worst10", "Worst 10 % of clients"),
        _value(lead, f"{lead.name}.best10", "Best 10 % of clients"),
        _value(lead, f"{lead.name}.{worst[0]}", worst[1]),
        Column("ece", "ECE", better=-1),
        Column("bytes_up", "MB up", 1e-6, ".2f"),
        Column("bytes_down", "MB down", 1e-6, ".2f"),
        Column("clock", "Virtual seconds", form=".1f"),
    )


CALIBRATION = (
    Column("top5", "Top-5 accuracy (%)", 100, ".2f", 1, spread=True),
    Column("loss", "Negative log likelihood", better=-1, spread=True),
    Column("brier", "Brier score", better=-1, spread=True),
    Column("entropy", "Entropy", spread=True),
    Column(DETECTION, "Out of distribution (AUROC)", better=1, spread=True),
    Column("ece", "ECE", better=-1, spread=True),
    Column("mce", "MCE", better=-1, spread=True),
    Column("ece_batchwise", "ECE by batch", better=-1, spread=True),
    Column("mce_batchwise", "MCE by batch", better=-1, spread=True),
)


def list_fairness(lead: Lead) -> tuple[Column, ...]:
    """The columns of fairness."""
    is_share = lead.is_share
    decile = ".1f" if is_share else lead.form
    # A spread is not ranked: clients that all do badly are alike.
    return (
        Column("variance", "Variance (points²)", 1e4, ".1f")
        if is_share
        else Column("variance", "Variance", form=".3g"),
        _difference(lead, "iqr", "IQR"),
        _difference(lead, "range", "Range"),
        Column("gini", "Gini", form=".4f"),
        Column("jain", "Jain", form=".4f"),
        Column("entropy_fairness", "Entropy", form=".4f"),
        Column("cosine_fairness", "Cosine", form=".4f"),
        _difference(lead, "gain_local", "Gain over local", 1),
        Column("worse_than_local", "Worse off than local (%)", 100, ".1f", -1),
        _difference(lead, "gain_tuned", "Gain over fine-tuned FedAvg", 1),
        _difference(lead, "gain_server", "Gain over server", 1),
        Column("worse_than_server", "Worse off than server (%)", 100, ".1f", -1),
        *(_value(lead, f"p{q}", f"P{q}")._replace(form=decile) for q in DECILES),
    )


def list_others(frame: Frame, lead: Lead) -> tuple[Column, ...]:
    """The columns of metrics beside the one that leads."""
    # Figures of fairness have a mean alone.
    names = frame.metric[frame["std"].notna() & ~frame.leads].unique()
    columns = {column.key: column for column in CALIBRATION if "ece" in names}
    for other in map(make_lead, names):
        own = _value(other, other.name, other.heading)._replace(spread=True)
        columns.setdefault(other.name, own)
    return tuple(columns.values())


UNITS = {  # of what is spent: (title, scale, format)
    "rounds": ("Rounds", 1, ".1f"),
    "plain_rounds": ("Plain rounds", 1, ".1f"),
    "bytes": ("MB", 1e-6, ".2f"),
    "seconds": ("Virtual seconds", 1, ".1f"),
}
# Groups of clients with tables of their own.
CLIENTS = ("participants", "never chosen", "unseen", "benign", "malicious")


def detail_tables(
    frame: Frame, targets: Sequence[float], window: int, ranked: bool
) -> dict[str, list[Table]]:
    """The tables of all models by section: the metric, fairness, others, targets."""
    lead = read_lead(frame)
    others = list_others(frame, lead)
    sections = {
        lead.heading: (list_columns(lead), NOTES["Lead"]),
        "Fairness": (list_fairness(lead), NOTES["Fairness"]),
    }
    title = "Calibration and loss" if CALIBRATION[0] in others else "Other metrics"
    sections[title] = others, NOTES[title]
    moments = {"last": "the last round"}
    # Where all runs chose their last round, one table stands for both.
    if not frame[frame.chosen.eq(True) & ~frame["last"]].empty:
        moments["chosen"] = "the round chosen on validation data"
    details = {}
    for section, (columns, note) in sections.items():
        details[section] = [
            make_table(
                f"{section} at {text}",
                values_by_seed(frame, moment=moment),
                columns,
                lead.fill(note),
                ranked,
            )
            for moment, text in moments.items()
        ]
    parts = {"on validation data": values_by_seed(frame, split="validation")}
    for clients in CLIENTS:
        parts[f"of clients: {clients}"] = values_by_seed(frame, clients)
    for text, values in parts.items():
        title = f"{lead.heading} at the last round {text}"
        table = make_table(title, values, list_columns(lead), "", ranked)
        details[lead.heading].append(table)
    details[lead.heading] += group_tables(frame, ranked)
    details["Until a target"] = [target_table(frame, targets, window, ranked)]
    return details


def group_tables(frame: Frame, ranked: bool) -> list[Table]:
    """For each grouping of clients, such as "domain", a column for each group."""
    tables = []
    lead = read_lead(frame)
    names = [name for name in frame.clients.unique() if "=" in name]
    for grouping in dict.fromkeys(name.partition("=")[0] for name in names):
        values = values_by_seed(frame)[SPENT]
        columns = []
        for name in names:
            if name.startswith(f"{grouping}="):
                values[name] = values_by_seed(frame, name)[lead.name]
                columns.append(_value(lead, name, name.partition("=")[2]))
        title = f"{lead.heading} at the last round by {grouping}"
        note = "Means over the clients of each group and over seeds."
        tables.append(make_table(title, values, columns, note, ranked))
    return tables


def target_table(
    frame: Frame, targets: Sequence[float], window: int, ranked: bool
) -> Table:
    """The costs until targets; without rows if nothing is known of them."""
    lead = read_lead(frame)
    curves = group_curves(frame)
    targets = sorted(set(targets or default_targets(curves, window)))
    values = spent_table(curves, targets, window)
    columns = []
    for target in targets:
        for name, (title, scale, form) in UNITS.items():
            if window == 1 and name == "plain_rounds":
                continue  # the same as the rounds
            title = f"{title} to {lead.scale * target:g}{lead.unit}"
            columns.append(Column(f"{name}_to_{target:g}", title, scale, form, -1))
    columns.append(_value(lead, "area", "Area under the curve"))
    if not keep_known(values, columns):
        return Table("", [], [])
    title = "Until a target"
    successive = "evaluation" if window == 1 else "successive evaluation"
    note = lead.fill(NOTES[title], window=count_noun(window, successive))
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

    Columns without a number are left out, and equal rows of a method are one. A method
    of which a run has diverged has no numbers.
    """
    columns = keep_known(values, columns)
    models: dict[tuple[str, ...], list[str]] = {}  # by the texts of their row
    for (method, model), seeds in values.groupby(level=[0, 1], sort=False):
        cells = [_average(seeds[column.key], column) for column in columns]
        if "diverged" in seeds and seeds.diverged.eq(True).any():
            cells = [EMPTY] * len(columns)
        rounds = sorted({f"{r:g}" for r in seeds["round"]}, key=float)
        texts = (str(method), *cells, str(len(seeds)), ", ".join(rounds))
        models.setdefault(texts, []).append(str(model))
    rows = [[texts[0], " = ".join(models[texts]), *texts[1:]] for texts in models]
    header = ["Method", "Model", *(c.title for c in columns), "Seeds", "Round"]
    best = {
        (i, j)
        for j, column in enumerate(columns, start=2)
        for i in _find_best(rows, j, column)
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
    rows: Sequence[Sequence[str]], place: int, column: Column
) -> Sequence[int]:
    """The rows of the best number as shown; none if there are not two different ones.

    An oracle, which is chosen on test examples, is not ranked.
    """
    numbers = {}
    for i, row in enumerate(rows):
        is_number = row[place] != EMPTY and not row[place].startswith("not reached")
        if is_number and not row[1].startswith(ORACLE):
            numbers[i] = column.better * float(row[place].partition(" ")[0])
    if len(set(numbers.values())) < 2:
        return []
    return [i for i, value in numbers.items() if value == max(numbers.values())]
