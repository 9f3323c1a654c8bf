"""A sweep's table, sweep.csv: as tidy records of its points, and as a figure.

A point is what was swept but for the seed, such as "mu=0.1 lr=0.05".
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.evaluation.over_clients import FIGURES
from pfljax.report.captions import NOTES
from pfljax.report.frames import Frame, make_frame
from pfljax.report.pairs import Scores
from pfljax.report.runs import is_local, is_tuned_fedavg
from pfljax.report.style import (
    GRID,
    Axes,
    Figure,
    add_legend,
    line_styles,
    new_figure,
    wrap,
)
from pfljax.report.tables import (
    ACCURACY,
    CALIBRATION,
    make_table,
    values_by_seed,
)
from pfljax.report.tables import markdown as table_markdown
from pfljax.report.tidy import COLUMNS, ORACLE, main_accuracies, select_main
from pfljax.runs.settings import Experiment
from pfljax.runtime.documents import damage_error

FIRST = "round"  # the columns before it are what was swept
MODELS = {  # (model, lambda) in sweep.csv -> model in the tidy table
    ("personal", ""): "personal",
    ("server", ""): "server",
    ("mixture", "validation"): "λ chosen on validation",
    ("mixture", "0.5"): "λ = 0.5",
    ("mixture", "oracle"): ORACLE,
    ("mixture", "ensemble"): "ensemble over λ",
}


def read(folder: str | Path) -> Frame:
    """The rows of sweep.csv, of all runs that are finished; what was swept is text.

    Raises:
      ValueError: no run is finished.
      FileError: the table is damaged.
    """
    import pandas as pd

    path = Path(folder) / "sweep.csv"
    if not path.exists():
        raise ValueError(
            f"{folder} has no sweep.csv: no run is finished; run its command again"
        )
    try:
        frame: Frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        numbers = ["clock", *FIGURES]
        frame[numbers] = frame[numbers].replace("", "nan").astype(float)
        frame["round"] = frame["round"].astype(int)
    except (ValueError, KeyError) as error:
        raise damage_error(path, error) from error
    # A kill may cut the last run, whose rows are written at once.
    if not path.read_bytes().endswith(b"\n"):
        swept = frame.loc[:, :FIRST].iloc[:, :-1]
        frame = frame[(swept != swept.iloc[-1]).any(axis=1)]
    return frame


def tidy(rows: Frame | Sequence[Mapping[str, Any]]) -> Frame:
    """The rows with the columns of the tidy table of runs; a method is a point."""
    import pandas as pd

    frame = make_frame(rows)
    names = swept_names(frame)
    # First, for a sweep may be over `model`, which becomes another column here.
    swept = frame[names].astype(object).to_numpy()
    frame["method"] = [point_text(names, values) for values in swept]
    models = zip(frame.evaluated, frame["lambda"].astype(str), strict=True)
    frame["model"] = [MODELS.get(model) for model in models]
    frame = frame[frame.model.notna()]
    frame["seed"] = frame.seed.astype(int) if "seed" in frame else 0
    last = frame.groupby(["method", "seed"])["round"].transform("max")
    frame["last"] = frame["round"] == last
    frame["main"] = frame.model == "personal"
    # It is an empty text without virtual seconds.
    frame["clock"] = pd.to_numeric(frame.clock)
    return frame.reindex(columns=list(COLUMNS))


def point_text(names: Sequence[str], values: Sequence[Any]) -> str:
    """A point in words; a method goes by its own name."""
    words = []
    for name, value in zip(names, values, strict=True):
        text = value_text(value)
        words.append(text if name == "algorithm" else f"{name}={text}")
    return " ".join(words) or "all seeds"


def value_text(value: Any) -> str:
    """A swept value, short where that is exact: 0.10 and 0.1 are one."""
    if value in (None, ""):
        return "None"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    # True is 1 as a number, and another value as a setting.
    is_exact = float(f"{number:g}") == number and not isinstance(value, bool)
    return f"{number:g}" if is_exact else str(value)


def make_scores(rows: Frame | Sequence[Mapping[str, Any]]) -> list[Scores]:
    """The accuracy of each point by seed, without that of its clients."""
    frame = make_frame(rows)
    points = tidy(frame)
    baselines: set[str] = set()
    if "algorithm" in swept_names(frame):
        for name, of_method in points.method.groupby(frame.algorithm):
            experiment = Experiment(name)
            if is_local(experiment) or is_tuned_fedavg(experiment):
                baselines.update(of_method)
    return [
        Scores(point, means, is_baseline=point in baselines)
        for point, means in main_accuracies(points).items()
    ]


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The points at the last round as a table in Markdown, over seeds."""
    calibration = [column for column in CALIBRATION if column.key != "ece"]
    columns = (*ACCURACY, *calibration)
    values = values_by_seed(tidy(rows))
    title = "Test metrics at the last round"
    return table_markdown(make_table(title, values, columns, NOTES["Accuracy"]))


def progress(frame: Frame, over: Mapping[str, Sequence[Any]]) -> list[str]:
    """A notice of how many of the runs of `over` are in the table; [] if all are."""
    wanted = {name: list(map(value_text, values)) for name, values in over.items()}
    runs = frame[list(over)].map(value_text).drop_duplicates()
    done = runs.isin(wanted).all(axis=1).sum()
    asked = math.prod(len(values) for values in over.values())
    if done >= asked:
        return []
    return [f"{done} of {asked} runs are finished; run the sweep again for the rest."]


def swept_names(frame: Frame) -> list[str]:
    """The names of what was swept, beside the seed."""
    names = list(frame)
    return [name for name in names[: names.index(FIRST)] if name != "seed"]


def figure(rows: Frame | Sequence[Mapping[str, Any]]) -> Figure | None:
    """Accuracy over the swept number with most values, a line for each other point.

    It is the personal models' mean over clients at the last round; whiskers are ± one
    standard deviation over seeds. None if no number was swept.
    """
    frame = make_frame(rows)
    along = _axis(frame)
    if along is None:
        return None
    points = tidy(frame)
    points["label"] = tidy(frame.drop(columns=along)).method
    points["tick"] = frame[along].loc[points.index].map(value_text)
    points = select_main(points[points["last"] & (points.metric == "accuracy")])
    drawn, (axes,) = new_figure(6.4, 3.6)
    _draw_points(axes, points)
    axes.set(xlabel=along, ylabel="test accuracy (%), mean over clients")
    axes.grid(axis="y", **GRID)
    return drawn


def _draw_points(axes: Axes, points: Frame) -> None:
    """Draws the means and deviations of the "label"s over the "tick"s."""
    # Even steps: values are often powers of ten, with a zero among them.
    ticks = sorted(set(points.tick), key=float)
    others = points.groupby("label", sort=False)
    styles = line_styles(others.groups)
    # Side by side, for whiskers of near curves would hide one another.
    width = 0.04 * len(ticks) if len(others) > 1 else 0
    shifts = np.linspace(-width / 2, width / 2, len(others))
    for (label, runs), shift in zip(others, shifts, strict=True):
        seeds = 100 * runs.pivot_table("mean", "tick", "seed").reindex(ticks)
        means, whiskers = seeds.mean(axis=1), seeds.std(axis=1).fillna(0)
        x = np.arange(len(ticks)) + shift
        look = {"marker": "o", "capsize": 3, **styles[label]}
        bars = axes.errorbar(x, means, whiskers, **look)
        bars.lines[0].set_label(wrap(label))
    axes.set_xticks(range(len(ticks)), ticks)
    if len(others) > 1:
        add_legend(axes)


def _axis(frame: Frame) -> str | None:
    """The swept number with most values, if it has two."""
    import pandas as pd

    texts = frame[swept_names(frame)].map(value_text)
    numbers = texts.apply(pd.to_numeric, errors="coerce").dropna(axis="columns")
    counts = numbers.nunique()
    return counts.idxmax() if counts.max() > 1 else None
