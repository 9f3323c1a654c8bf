"""The report of a sweep: its tidy table (sweep.csv) as one of points, and a figure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax.report.columns import CALIBRATION, COLUMNS, DETECTED, DETECTION, Row, Table
from pfljax.report.runs import number
from pfljax.report.statistics import over_seeds
from pfljax.report.style import GRID, label_ends, line_styles, new_figure
from pfljax.report.sweep_rows import Rows, final, names_of, value_text
from pfljax.report.sweep_rows import progress as progress
from pfljax.report.sweep_rows import read as read
from pfljax.report.tables import PROBLEM

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTION = (
    "Test metrics at the last round. Accuracy is the unweighted mean over clients; ± "
    "is the sample standard deviation of that mean over n seeds. Std over clients is "
    "the population standard deviation inside one run, averaged over seeds."
)
FIGURE = (
    "Accuracy of the personal models after the last round, mean over clients; whiskers "
    "are the sample standard deviation over seeds."
)
JUDGED = {  # (model, lambda) -> what the table says
    ("personal", ""): "personal",
    ("server", ""): "server",
    ("mixture", "validation"): "λ chosen on validation",
    ("mixture", "0.5"): "λ = 0.5",
    ("mixture", "oracle"): "oracle (chosen on test)",
    ("mixture", "ensemble"): "ensemble over λ",
}
OF_ACCURACY = {"std_clients": "std", "weighted": "weighted", "worst10": "worst10"}
MEANS = ("top5", "loss", "brier", "entropy", DETECTION, "ece")
SHOWN = (
    *(column for column in COLUMNS if column.key in ("accuracy", *OF_ACCURACY)),
    *(column for column in CALIBRATION if column.key in MEANS),
)
Seeds = dict[int, dict[str, float]]  # seed -> column and round -> value
Curve = dict[str, list[float]]  # tick -> accuracies over seeds


def table(rows: Rows, progress: str = "") -> Table:
    """Points and judged models by their figures after the last round, over seeds.

    `progress` begins the caption.
    """
    names = names_of(rows)
    points: dict[tuple[str, str], Seeds] = {}
    for row in final(rows):
        judged = JUDGED.get((row["judged"], str(row["lambda"])))
        # The table shows no lambda but 1/2 and those chosen.
        if judged is None or row["split"] != "test":
            continue
        point = point_text(row, names) or "all seeds"
        seeds = points.setdefault((point, judged), {})
        seed = int(row.get("seed", 0))
        values = seeds.setdefault(seed, {"round": row["round"]})
        values.update(_values(row))
    lines = []
    for (point, judged), seeds in points.items():
        lines.append(_table_row(point, judged, seeds))
    differing = [name for name in names if name in PROBLEM]
    told = CAPTION
    if differing:
        lines = [line._replace(ranked=False) for line in lines]
        told += (
            f" The points differ in {', '.join(differing)}: their numbers are not of "
            "one problem, and none is marked as the best."
        )
    detected = any(not np.isnan(line.values[DETECTION]).all() for line in lines)
    return Table(
        name="sweep",
        caption=progress + told + (DETECTED if detected else ""),
        # Most sweeps detect nothing: the column is there where one has.
        columns=tuple(c for c in SHOWN if detected or c.key != DETECTION),
        rows=tuple(lines),
    )


def _values(row: Mapping[str, Any]) -> dict[str, float]:
    """The columns that come from a row of the tidy table."""
    values = {row["metric"]: number(row["mean"])}
    if row["metric"] == "accuracy":
        for column, figure in OF_ACCURACY.items():
            values[column] = number(row[figure])
    return values


def _table_row(point: str, judged: str, seeds: Seeds) -> Row:
    """A point, judged by one model, over its seeds."""
    by_seed = list(seeds.values())
    values = {}
    for column in SHOWN:
        # A seed may lack a metric: its run was written by an older version.
        numbers = [seed.get(column.key, np.nan) for seed in by_seed]
        values[column.key] = np.array(numbers)
    return Row(
        method=point,
        judged=judged,
        ranked=not judged.startswith("oracle"),
        seeds=tuple(seeds),
        rounds=tuple(int(seed["round"]) for seed in by_seed),
        values=values,
    )


def point_text(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """Names and values of a point; empty where nothing but seeds was swept."""
    words = [f"{name}={value_text(row[name])}" for name in names]
    return " ".join(words)


def figure(rows: Rows) -> "Figure | None":
    """Accuracy over the swept number with most values, a line for each of the rest.

    The personal models' mean over clients after the last round; whiskers are the sample
    std over seeds. None where no number was swept.
    """
    along = _axis(rows)
    if along is None:
        return None
    texts = {value_text(row[along]) for row in rows}
    # Even steps: values are often powers of ten, with a zero among them.
    ticks = sorted(texts, key=float)
    curves = _curves(rows, along)
    styles = line_styles(list(curves))
    # Whiskers side by side, for equal ones would hide one another.
    shifts = np.linspace(-0.02, 0.02, len(curves)) * len(ticks)
    drawn, (axes,) = new_figure(6.4, 3.6)
    ends = []
    for label, style, shift in zip(curves, styles, shifts, strict=True):
        last = _draw_curve(axes, curves[label], ticks, float(shift), style)
        ends.append((last, label, style["color"]))
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlabel(along)
    axes.set_ylabel("test accuracy (%), mean over clients")
    axes.grid(axis="y", **GRID)
    # One line alone has nothing to be told from, and no name.
    if len(ends) > 1:
        label_ends(axes, ends)
    return drawn


def _draw_curve(
    axes: "Axes",
    curve: Curve,
    ticks: Sequence[str],
    shift: float,
    style: Mapping[str, Any],
) -> float:
    """Draws one line, moved right by `shift` ticks; its last mean, in percent."""
    means = []
    stds = []
    for tick in ticks:
        # A point may not be finished yet.
        accuracies = np.array(curve.get(tick, []))
        mean, std, _ = over_seeds(100 * accuracies)
        means.append(mean)
        stds.append(std)
    x = np.arange(len(ticks)) + shift
    # One seed has no std: its whisker has no length.
    whiskers = np.nan_to_num(stds)
    axes.errorbar(x, np.array(means), whiskers, marker="o", capsize=3, **style)
    return means[-1]


def _axis(rows: Rows) -> str | None:
    """The swept number with most values, if there is one with two."""
    counts = {}
    for name in names_of(rows):
        texts = {value_text(row[name]) for row in rows}
        if len(texts) > 1 and all(_is_number(text) for text in texts):
            counts[name] = len(texts)
    # The first of those with as many.
    return max(counts, key=lambda name: counts[name], default=None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _curves(rows: Rows, along: str) -> dict[str, Curve]:
    """Accuracies of the personal models, by the other names and along the axis."""
    rest = [name for name in names_of(rows) if name != along]
    curves: dict[str, Curve] = {}
    for row in final(rows):
        kind = (row["judged"], row["split"], row["metric"])
        if kind != ("personal", "test", "accuracy"):
            continue
        label = point_text(row, rest)
        tick = value_text(row[along])
        curve = curves.setdefault(label, {})
        accuracies = curve.setdefault(tick, [])
        accuracies.append(number(row["mean"]))
    return curves
