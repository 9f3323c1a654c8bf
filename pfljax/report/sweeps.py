"""The report of a sweep: its tidy table (sweep.csv) as one of points, and a figure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax.report.columns import (
    CALIBRATION,
    COLUMNS,
    DETECTED,
    DETECTION,
    Column,
    Row,
    Table,
    same_numbers,
    stated_once,
)
from pfljax.report.runs import number
from pfljax.report.statistics import over_seeds
from pfljax.report.style import (
    GRID,
    label_ends,
    line_styles,
    new_figure,
    told_once,
    wrapped,
)
from pfljax.report.sweep_rows import (
    Rows,
    clock_of,
    final,
    names_of,
    of_clients,
    value_text,
)
from pfljax.report.sweep_rows import progress as progress
from pfljax.report.sweep_rows import read as read
from pfljax.report.tables import PROBLEM

if TYPE_CHECKING:
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
CLOCK = Column("clock", "Virtual seconds", scale=1, digits=1, better=0)
SOMETIMES = (DETECTION, CLOCK.key)
SHOWN = (
    *(column for column in COLUMNS if column.key in ("accuracy", *OF_ACCURACY)),
    *(column for column in CALIBRATION if column.key in MEANS),
    CLOCK,
)
Seeds = dict[int, dict[str, float]]  # seed -> column and round -> value
Curve = dict[str, list[float]]  # tick -> accuracies over seeds


def table(
    rows: Rows, progress: str = "", clients: str = "all", once: bool = True
) -> Table:
    """Points and judged models by their figures after the last round, over seeds.

    `progress` ends the caption. `clients` are "all", "benign" or "malicious"; no rows
    where there are none. Equal rows stand there `once`.
    """
    names = names_of(rows)
    points: dict[tuple[str, str], Seeds] = {}
    for row in of_clients(final(rows), clients):
        judged = JUDGED.get((row["judged"], str(row["lambda"])))
        # The table shows no lambda but 1/2 and those chosen.
        if judged is None or row["split"] != "test":
            continue
        point = point_text(row, names) or "all seeds"
        seeds = points.setdefault((point, judged), {})
        seed = int(row.get("seed", 0))
        spent = {"round": row["round"], CLOCK.key: clock_of(row)}
        values = seeds.setdefault(seed, spent)
        values.update(_values(row))
    lines = []
    for (point, judged), seeds in points.items():
        lines.append(_table_row(point, judged, seeds))
    differing = [name for name in names if name in PROBLEM]
    caption = CAPTION
    if differing:
        lines = [line._replace(ranked=False) for line in lines]
        caption += (
            f" The points differ in {', '.join(differing)}: their numbers are not of "
            "one problem, and none is marked as the best."
        )
    # Most sweeps detect nothing and have no clock: columns are there where one has.
    columns = [c for c in SHOWN if c.key not in SOMETIMES or _has(lines, c.key)]
    if clients != "all":
        caption += f" Of {clients} clients alone."
    if _has(lines, DETECTION):
        caption += DETECTED
    if progress:
        caption += f" {progress}"
    return Table(
        name="sweep" if clients == "all" else f"sweep_{clients}",
        caption=caption,
        columns=tuple(columns),
        rows=tuple(_points_once(stated_once(lines)) if once else lines),
    )


def _has(lines: Sequence[Row], column: str) -> bool:
    """Whether some row has a number in this column."""
    return any(not np.isnan(line.values[column]).all() for line in lines)


def _points_once(rows: Sequence[Row]) -> list[Row]:
    """The rows, those of several points with equal numbers as one.

    Such as of a server that what was swept does not reach.
    """
    alike: list[list[Row]] = []
    for row in rows:
        for group in alike:
            if row.judged == group[0].judged and same_numbers(row, group[0]):
                group.append(row)
                break
        else:
            alike.append([row])
    count = len({row.method for row in rows})
    once = []
    for group in alike:
        name = ", ".join(row.method for row in group)
        if len(group) == count > 1:
            name = "every point"
        once.append(group[0]._replace(method=name))
    return once


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
    words = []
    for name in names:
        value = value_text(row[name])
        # A method goes by its own name.
        words.append(value if name == "algorithm" else f"{name}={value}")
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
    points = [_points(curve, ticks) for curve in curves.values()]
    different = told_once(list(curves), points)
    styles = line_styles([label for _, label in different])
    # Whiskers side by side, for those of near curves would hide one another.
    shifts = _beside(len(different), 0.04 * len(ticks))
    drawn, (axes,) = new_figure(6.4, 3.6)
    ends = []
    for (place, label), style, shift in zip(different, styles, shifts, strict=True):
        means, whiskers = points[place]
        x = np.arange(len(ticks)) + shift
        axes.errorbar(x, means, whiskers, marker="o", capsize=3, **style)
        ends.append((means[-1], wrapped(label), style["color"]))
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlabel(along)
    axes.set_ylabel("test accuracy (%), mean over clients")
    axes.grid(axis="y", **GRID)
    # One line alone has nothing to be told from, and no name.
    if len(ends) > 1:
        label_ends(axes, ends)
    return drawn


def _beside(count: int, width: float) -> np.ndarray:
    """Shifts f[count] over `width` around 0; one alone is not shifted."""
    if count == 1:
        return np.zeros(1)
    return np.linspace(-0.5, 0.5, count) * width


def _points(curve: Curve, ticks: Sequence[str]) -> np.ndarray:
    """Means and std over seeds, in percent, f[2, ticks]."""
    means = []
    stds = []
    for tick in ticks:
        # A point may not be finished yet.
        accuracies = np.array(curve.get(tick, []))
        mean, std, _ = over_seeds(100 * accuracies)
        means.append(mean)
        # One seed has no std: its whisker has no length.
        stds.append(np.nan_to_num(std))
    return np.array([means, stds])


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
    for row in of_clients(final(rows), "all"):
        kind = (row["judged"], row["split"], row["metric"])
        if kind != ("personal", "test", "accuracy"):
            continue
        label = point_text(row, rest)
        tick = value_text(row[along])
        curve = curves.setdefault(label, {})
        accuracies = curve.setdefault(tick, [])
        accuracies.append(number(row["mean"]))
    return curves
