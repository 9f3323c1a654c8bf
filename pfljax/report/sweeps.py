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
    Figure,
    add_legend,
    line_styles,
    merge_equal,
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
        for name in ("round", "mean", "clock", *FIGURES):
            if name in frame or name == "mean":
                frame[name] = [float(text or "nan") for text in frame[name]]
        frame["round"] = frame["round"].astype(int)
    except (ValueError, KeyError) as error:
        raise damage_error(path, error) from error
    # A kill may cut the last run, whose rows are written at once.
    if not path.read_bytes().endswith(b"\n"):
        names = _swept(frame)
        frame = frame[(frame[names] != frame[names].iloc[-1]).any(axis=1)]
    return frame


def tidy(rows: Frame | Sequence[Mapping[str, Any]]) -> Frame:
    """The rows with the columns of the tidy table of runs; a method is a point."""
    frame = make_frame(rows)
    swept = frame[swept_names(frame)].to_dict("records")
    # First, for a sweep may be over `model`, which becomes another column here.
    frame["method"] = [point_text(dict(row)) for row in swept]
    models = zip(frame.evaluated, frame["lambda"].astype(str), strict=True)
    frame["model"] = [MODELS.get(model) for model in models]
    frame = frame[frame.model.notna()]
    frame["seed"] = frame.seed.astype(int) if "seed" in frame else 0
    last = frame.groupby(["method", "seed"])["round"].transform("max")
    frame["last"] = frame["round"] == last
    frame["main"] = frame.model == "personal"
    if "clock" in frame:  # empty without virtual seconds
        frame["clock"] = [float(c) if c != "" else math.nan for c in frame.clock]
    return frame.reindex(columns=list(COLUMNS))


def point_text(values: Mapping[str, Any]) -> str:
    """A point in words; a method goes by its own name."""
    words = []
    for name, value in values.items():
        text = value_text(value)
        words.append(text if name == "algorithm" else f"{name}={text}")
    return " ".join(words) or "all seeds"


def value_text(value: Any) -> str:
    """A swept value, short where that is exact: 0.10 and 0.1 are one."""
    if value in (None, ""):
        return "None"
    as_number = _to_number(value)
    # True is 1 as a number, and another value as a setting.
    if isinstance(value, bool) or as_number != _to_number(f"{as_number:g}"):
        return str(value)
    return f"{as_number:g}"


def _to_number(value: Any) -> float:
    """The value as a number; NaN if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def make_scores(rows: Frame | Sequence[Mapping[str, Any]]) -> list[Scores]:
    """The accuracy of each point by seed, without that of its clients."""
    baselines = _baselines(make_frame(rows))
    return [
        Scores(point, means, is_baseline=point in baselines)
        for point, means in main_accuracies(tidy(rows)).items()
    ]


def _baselines(frame: Frame) -> set[str]:
    """The points that are local training or fine-tuned FedAvg."""
    if "algorithm" not in swept_names(frame):
        return set()
    points = set()
    for values in frame[swept_names(frame)].drop_duplicates().to_dict("records"):
        experiment = Experiment(values["algorithm"])
        if is_local(experiment) or is_tuned_fedavg(experiment):
            points.add(point_text(values))
    return points


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The points at the last round as a table in Markdown, over seeds."""
    calibration = [column for column in CALIBRATION if column.key != "ece"]
    columns = (*ACCURACY, *calibration)
    values = values_by_seed(tidy(rows))
    title = "Test metrics at the last round"
    return table_markdown(make_table(title, values, columns, NOTES["Accuracy"]))


def progress(frame: Frame, over: Mapping[str, Sequence[Any]]) -> list[str]:
    """A notice of how many of the runs of `over` are in the table; [] if all are."""
    wanted = {name: {value_text(value) for value in over[name]} for name in over}
    runs = frame[list(over)].drop_duplicates().to_dict("records")
    done = sum(all(value_text(r[n]) in wanted[n] for n in over) for r in runs)
    asked = math.prod(len(values) for values in over.values())
    if done >= asked:
        return []
    return [f"{done} of {asked} runs are finished; run the sweep again for the rest."]


def swept_names(frame: Frame) -> list[str]:
    """The names of what was swept, beside the seed."""
    return [name for name in _swept(frame) if name != "seed"]


def _swept(frame: Frame) -> list[str]:
    names = list(frame)
    return names[: names.index(FIRST)]


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
    # Even steps: values are often powers of ten, with a zero among them.
    ticks = sorted(set(points.tick), key=float)
    accuracy = 100 * points.pivot_table("mean", ["label", "tick"], "seed", sort=False)
    curves = {}
    for label, seeds in accuracy.groupby(level="label", sort=False):
        seeds = seeds.droplevel("label").reindex(ticks)
        curves[str(label)] = np.array([seeds.mean(axis=1), seeds.std(axis=1).fillna(0)])
    return _draw_points(curves, ticks, along)


def _draw_points(
    curves: Mapping[str, np.ndarray], ticks: Sequence[str], along: str
) -> Figure:
    """Draws means and whiskers f[2, ticks] by label."""
    merged = merge_equal(list(curves), list(curves.values()))
    drawn, (axes,) = new_figure(6.4, 3.6)
    styles = line_styles([label for _, label in merged])
    # Side by side, for whiskers of near curves would hide one another.
    shifts = np.linspace(-0.5, 0.5, len(merged)) * 0.04 * len(ticks)
    for (i, label), style, shift in zip(merged, styles, shifts, strict=True):
        means, whiskers = list(curves.values())[i]
        x = np.arange(len(ticks)) + (shift if len(merged) > 1 else 0)
        bars = axes.errorbar(x, means, whiskers, marker="o", capsize=3, **style)
        bars.lines[0].set_label(wrap(label))
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set(xlabel=along, ylabel="test accuracy (%), mean over clients")
    axes.grid(axis="y", **GRID)
    if len(merged) > 1:
        add_legend(axes)
    return drawn


def _axis(frame: Frame) -> str | None:
    """The swept number with most values, if it has two."""
    counts = {}
    for name in swept_names(frame):
        texts = {value_text(value) for value in frame[name].unique()}
        if len(texts) > 1 and not any(math.isnan(_to_number(text)) for text in texts):
            counts[name] = len(texts)
    return max(counts, key=lambda name: counts[name], default=None)
