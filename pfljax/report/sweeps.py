"""The report of a sweep: its tidy table (sweep.csv) as one of points, and a figure."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax.report.columns import CALIBRATION, COLUMNS, Row, Table
from pfljax.report.read_files import damaged
from pfljax.report.style import GRID, label_ends, line_styles, new_figure
from pfljax.report.tables import over_seeds
from pfljax.runs.folder import DAMAGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
CAPTION = (
    "Test metrics at the last round. Accuracy is the unweighted mean over clients; ± "
    "is the sample standard deviation of that mean over n seeds. Std over clients is "
    "the population standard deviation inside one run, averaged over seeds."
)
FIGURE = (
    "Accuracy of the personal models after the last round, mean over clients; whiskers "
    "are the sample standard deviation over seeds."
)
FIRST_OF_JUDGED = "round"  # the columns before it are what was swept
JUDGED = {  # (model, lambda) -> what the table says
    ("personal", ""): "personal",
    ("server", ""): "server",
    ("mixture", "validation"): "λ chosen on validation",
    ("mixture", "0.5"): "λ = 0.5",
    ("mixture", "oracle"): "oracle (chosen on test)",
}
OF_ACCURACY = {"std_clients": "std", "weighted": "weighted", "worst10": "worst10"}
SHOWN = tuple(c for c in COLUMNS if c.key in ("accuracy", *OF_ACCURACY)) + tuple(
    c for c in CALIBRATION if c.key in ("top5", "loss", "ece")
)


def read(folder: str | Path) -> list[dict[str, Any]]:
    """The rows of a sweep's sweep.csv: of all runs that are finished.

    Numbers are floats, NaN where empty.

    Raises:
      ValueError: no run is finished there, or the table is damaged.
    """
    path = Path(folder) / "sweep.csv"
    if not path.exists():
        raise ValueError(
            f"{folder} has no sweep.csv: no run is finished; its command goes on"
        )
    try:
        text = path.read_text("utf-8")
        whole = text[: text.rfind("\n") + 1]
        rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(whole)))
        if whole != text:  # a run is being added, or this was cut short
            rows = _without_the_last_run(rows)
        figures = list(rows[0])[list(rows[0]).index("metric") + 1 :]
        for row in rows:
            row["round"] = int(row["round"])
            row |= {name: float(row[name] or "nan") for name in figures}
    except (*DAMAGE, IndexError) as error:
        raise damaged(path, error) from error
    return rows


def _without_the_last_run(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows before those of the run that the last row is of."""
    names = _swept(rows)
    runs = [[row[name] for name in names] for row in rows]
    return [row for row, run in zip(rows, runs, strict=True) if run != runs[-1]]


def progress(rows: Rows, over: Mapping[str, Sequence[Any]]) -> str:
    """How many of the runs `over` names are in the table, where it is not all."""
    asked = math.prod(len(values) for values in over.values())
    wanted = {name: {_text(value) for value in over[name]} for name in over}
    found = {tuple(_text(row[name]) for name in over) for row in rows}
    done = sum(
        all(text in wanted[name] for name, text in zip(over, run, strict=True))
        for run in found
    )
    told = f"{done} of {asked} runs are finished; the sweep's command runs the rest. "
    return told if done < asked else ""


def _swept(rows: Rows) -> list[str]:
    names = list(rows[0])
    return names[: names.index(FIRST_OF_JUDGED)]


def names_of(rows: Rows) -> list[str]:
    """What was swept, beside the seed."""
    return [name for name in _swept(rows) if name != "seed"]


def table(rows: Rows, told: str = "") -> Table:
    """Points and judged models by their figures after the last round, over seeds.

    `told` begins the caption.
    """
    names = names_of(rows)
    found: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for row in final(rows):
        judged = JUDGED.get((row["judged"], str(row["lambda"])))
        if row["split"] == "test" and judged:
            point = _point(row, names)
            own = found.setdefault((point, judged), {})
            seed = own.setdefault(int(row.get("seed", 0)), {"round": row["round"]})
            seed[row["metric"]] = _number(row["mean"])
            if row["metric"] == "accuracy":
                seed |= {key: _number(row[name]) for key, name in OF_ACCURACY.items()}
    lines = [
        Row(
            point,
            judged,
            not judged.startswith("oracle"),
            tuple(seeds),
            tuple(int(seed["round"]) for seed in seeds.values()),
            {
                c.key: np.array([s.get(c.key, np.nan) for s in seeds.values()])
                for c in SHOWN
            },
        )
        for (point, judged), seeds in found.items()
    ]
    return Table("sweep", told + CAPTION, SHOWN, tuple(lines))


def final(rows: Rows) -> list[Mapping[str, Any]]:
    """The rows of each run's last round."""
    names = _swept(rows)
    runs = [tuple(row[name] for name in names) for row in rows]
    last: dict[tuple, int] = {}
    for run, row in zip(runs, rows, strict=True):
        last[run] = max(row["round"], last.get(run, 0))
    pairs = zip(runs, rows, strict=True)
    return [row for run, row in pairs if row["round"] == last[run]]


def _point(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return " ".join(f"{name}={_text(row[name])}" for name in names) or "all seeds"


def _text(value: Any) -> str:
    """A swept value, short where that is exact: 0.10 and 0.1 are one.

    None is an empty field of sweep.csv.
    """
    if value in (None, ""):
        return "None"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    short = f"{number:g}"
    return str(value) if isinstance(value, bool) or float(short) != number else short


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def figure(rows: Rows) -> "Figure | None":
    """Accuracy over the swept number with most values, a line for each of the rest.

    The personal models' mean over clients after the last round; whiskers are the sample
    std over seeds. None where no number was swept.
    """
    along = _axis(rows)
    if along is None:
        return None
    rest = [name for name in names_of(rows) if name != along]
    ticks = sorted({_text(row[along]) for row in rows}, key=float)
    curves = _curves(rows, along, rest)
    drawn, (axes,) = new_figure(6.4, 3.6)
    ends = []
    apart = np.linspace(-0.02, 0.02, len(curves)) * len(ticks)  # whiskers side by side
    for (label, curve), style, shift in zip(
        curves.items(), line_styles(list(curves)), apart, strict=True
    ):
        own = [over_seeds(100 * np.array(curve.get(tick, []))) for tick in ticks]
        mean, std = np.array([figures[:2] for figures in own]).T
        whisker = np.nan_to_num(std)
        x = np.arange(len(ticks)) + shift
        axes.errorbar(x, mean, whisker, marker="o", capsize=3, **style)
        ends.append((mean[-1], label, style["color"]))
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlabel(along)
    axes.set_ylabel("test accuracy (%), mean over clients")
    axes.grid(axis="y", **GRID)
    label_ends(axes, ends if len(ends) > 1 else ())
    return drawn


def _axis(rows: Rows) -> str | None:
    """The swept number with most values, if there is one with two."""
    values = {name: {_text(row[name]) for row in rows} for name in names_of(rows)}
    numbers = [n for n, own in values.items() if all(map(_is_number, own))]
    most = max(numbers, key=lambda name: len(values[name]), default=None)
    return most if most and len(values[most]) > 1 else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _curves(
    rows: Rows, along: str, rest: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """By the rest of the point and the value along the axis: accuracies over seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in final(rows):
        wanted = row["judged"], row["split"], row["metric"]
        if wanted == ("personal", "test", "accuracy"):
            label = " ".join(f"{name}={_text(row[name])}" for name in rest)
            curve = found.setdefault(label, {})
            curve.setdefault(_text(row[along]), []).append(_number(row["mean"]))
    return found
