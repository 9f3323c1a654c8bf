"""Tables of numbers over seeds, made from tidy records: for pages, Markdown and LaTeX.

The standard deviation over clients is the population's, inside a run; that over seeds
is the sample's. They are two columns and never mixed.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from pfljax.evaluation.fairness import DECILES
from pfljax.evaluation.over_clients import DETECTION, FIGURES
from pfljax.report.curves import INDEX
from pfljax.report.frames import Frame, make_frame
from pfljax.report.tidy import ORACLE

EMPTY = "–"


class Column(NamedTuple):
    """How one number is shown."""

    key: str  # a metric, "metric.figure", or what was spent
    title: str
    scale: float = 1  # shown = value * scale
    digits: int = 3
    better: int = 0  # 1 if more is better, -1 if less is, 0 for neither
    spread: bool = False  # whether to show the standard deviation over seeds


class Table(NamedTuple):
    """A table of text, with the cells (row, column) that are the best."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()
    note: str = ""


def _percent(key: str, title: str, digits: int = 2, better: int = 1) -> Column:
    return Column(key, f"{title} (%)", 100, digits, better)


def _points(key: str, title: str, better: int = 0) -> Column:
    return Column(key, f"{title} (points)", 100, 2, better)


WORSE_THAN_LOCAL = _percent("worse_than_local", "Worse off than local", 1, better=-1)
ACCURACY = (
    _percent("accuracy", "Accuracy")._replace(spread=True),
    _points("accuracy.std", "Std over clients"),
    _percent("accuracy.weighted", "Weighted by examples"),
    _percent("accuracy.worst10", "Worst 10 % of clients"),
    _percent("accuracy.best10", "Best 10 % of clients"),
    _percent("accuracy.min", "Least"),
    Column("ece", "ECE", better=-1),
    WORSE_THAN_LOCAL,
    Column("bytes_up", "MB up", 1e-6, 2),
    Column("bytes_down", "MB down", 1e-6, 2),
    Column("clock", "Virtual seconds", digits=1),
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
CALIBRATION_NOTE = (
    "Means over clients, ± the standard deviation over seeds. ECE and MCE have 15 bins "
    "over all examples of a client; by batch they are binned batch by batch. AUROC is "
    "of the entropy of predictions, for examples of classes that a client does not "
    "hold against its own."
)
FAIRNESS = (
    # A spread is not ranked: clients that all do badly are alike.
    Column("variance", "Variance (points²)", 1e4, 1),
    _points("iqr", "IQR"),
    _points("range", "Range"),
    Column("gini", "Gini", digits=4),
    Column("jain", "Jain", digits=4),
    Column("entropy_fairness", "Entropy", digits=4),
    Column("cosine_fairness", "Cosine", digits=4),
    _points("gain_local", "Gain over local", better=1),
    WORSE_THAN_LOCAL,
    _points("gain_tuned", "Gain over fine-tuned FedAvg", better=1),
    _points("gain_server", "Gain over server", better=1),
    _percent("worse_than_server", "Worse off than server", 1, better=-1),
    *(_percent(f"p{q}", f"P{q}", 1) for q in DECILES),
)
FAIRNESS_NOTE = (
    "How the accuracy is spread over clients, as means over seeds. P10 to P90 are "
    "deciles, IQR is the distance of the quartiles. For equal clients Gini's index is "
    "0, and Jain's index, the entropy and the cosine are 1. Gains are means over "
    "clients, over the same clients of another model."
)
ACCURACY_NOTE = (
    "Means over seeds; ± is the sample standard deviation over seeds. The standard "
    "deviation over clients is the population's inside a run. MB are 1e6 bytes, of all "
    "clients up to this round."
)
SPENT_NOTE = (
    "Rounds, MB up and down of all clients, and virtual seconds until the running mean "
    "of three evaluations reaches an accuracy. A target is not reached if one seed "
    "does not reach it. The area is the mean accuracy along the run."
)
UNITS = {  # of what is spent: (title, scale, digits)
    "rounds": ("Rounds", 1, 1),
    "bytes": ("MB", 1e-6, 2),
    "seconds": ("Virtual seconds", 1, 1),
}


def spent_columns(targets: Sequence[float]) -> list[Column]:
    """What is spent until each target, and the area under the curve."""
    columns = []
    for target in targets:
        for name, (title, scale, digits) in UNITS.items():
            title = f"{title} to {100 * target:g} %"
            columns.append(Column(f"{name}_to_{target:g}", title, scale, digits, -1))
    return [*columns, _percent("area", "Area under the curve")]


def values_by_seed(
    frame: Frame, clients: str = "all", moment: str = "last", split: str = "test"
) -> Frame:
    """Metrics of each method, model and seed, a column each: "accuracy.std".

    `moment` is "last", or "chosen" for the round chosen on validation data.
    """
    index = list(INDEX)
    rows = frame[frame[moment] & (frame.clients == clients) & (frame.split == split)]
    wide = rows.pivot(index=index, columns="metric", values=list(FIGURES))
    wide.columns = [m if f == "mean" else f"{m}.{f}" for f, m in wide.columns]
    spent = rows.groupby(index)[["round", "bytes_up", "bytes_down", "clock"]].first()
    order = rows.set_index(index).index.unique()
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
    columns = [
        c for c in columns if c.key in values and values[c.key].notna().any()
    ]  # fmt: skip
    lines: dict[tuple[str, ...], list[str]] = {}
    numbers: list[list[float]] = []
    for (method, model), seeds in values.groupby(level=[0, 1], sort=False):
        cells = [_cell(seeds[c.key] * c.scale, c) for c in columns]
        rounds = sorted({f"{r:g}" for r in seeds["round"]}, key=float)
        texts = [text for text, _ in cells] + [str(len(seeds)), ", ".join(rounds)]
        models = lines.setdefault((str(method), *texts), [])
        if not models:
            is_ranked = ranked and model != ORACLE
            numbers.append([v if is_ranked else math.nan for _, v in cells])
        models.append(str(model))
    rows = [
        [method, " = ".join(models), *texts]
        for (method, *texts), models in lines.items()
    ]
    header = ["Method", "Model", *(c.title for c in columns), "Seeds", "Round"]
    best = frozenset(
        (i, j + 2)
        for j, column in enumerate(columns)
        for i in _best([row[j] for row in numbers], column)
    )
    return Table(title, header, rows, best, note)


def _cell(values: Any, column: Column) -> tuple[str, float]:
    """(the text of a mean over seeds, the number that it shows)."""
    values = values.dropna()
    if values.empty:
        return EMPTY, math.nan
    mean = float(values.mean())
    if math.isinf(mean):
        missing = int((values == math.inf).sum())
        some = "" if missing == len(values) else f" by {missing} of {len(values)} seeds"
        return f"not reached{some}", math.nan
    text = f"{mean:.{column.digits}f}"
    if column.spread and len(values) > 1:
        text += f" ± {values.std():.{column.digits}f}"
    return text, round(mean, column.digits)


def _best(numbers: Sequence[float], column: Column) -> list[int]:
    """The rows of the best number; none if there are not two different ones."""
    known = {value for value in numbers if not math.isnan(value)}
    if not column.better or len(known) < 2:
        return []
    best = max(known) if column.better > 0 else min(known)
    return [i for i, value in enumerate(numbers) if value == best]


def markdown(table: Table) -> str:
    """The table in Markdown, below its title; the best of a column is bold."""
    lines = [list(table.header), ["---"] * len(table.header)]
    for i, row in enumerate(table.rows):
        marked = [
            f"**{cell}**" if (i, j) in table.best else _escape_markdown(cell)
            for j, cell in enumerate(row)
        ]
        lines.append(marked)
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"{table.title}. {table.note}".rstrip() + f"\n\n{body}"


def latex(table: Table) -> str:
    r"""The table in LaTeX, for `\usepackage{booktabs,graphicx}`."""
    frame = make_frame(table.rows, table.header)
    styler = frame.style.hide(axis="index").format(escape="latex")
    styler.format_index(escape="latex", axis="columns")

    def bold(cells: Frame) -> Frame:
        marks = cells.map(lambda _: "")
        for cell in table.best:
            marks.iloc[cell] = "textbf:--rwrap;"
        return marks

    caption = f"{table.title}. {table.note}".rstrip().replace("%", r"\%")
    text = styler.apply(bold, axis=None).to_latex(
        hrules=True, caption=caption, position_float="centering"
    )
    text = text.replace(
        r"\begin{tabular}", r"\resizebox{\textwidth}{!}{\begin{tabular}"
    )
    text = text.replace(r"\end{tabular}", r"\end{tabular}}")
    for letter, command in LATEX.items():
        text = text.replace(letter, command)
    return text


LATEX = {"±": r"$\pm$", "²": "$^2$", EMPTY: "--"}
LATEX |= {"α": r"$\alpha$", "λ": r"$\lambda$", "μ": r"$\mu$", "ν": r"$\nu$"}


def _escape_markdown(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\|*`<_" else c for c in " ".join(text.split()))
