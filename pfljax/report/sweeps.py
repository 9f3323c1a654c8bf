"""What the report of a sweep has beside that of a comparison: its axes."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.report import overview, pairs
from pfljax.report.captions import NOTES
from pfljax.report.columns import axis_text, columns_table, label_without
from pfljax.report.frames import Frame
from pfljax.report.heat_maps import heat_map
from pfljax.report.lead import Lead, read_lead
from pfljax.report.quantities import SPAN
from pfljax.report.seeds import Group, group_runs
from pfljax.report.style import (
    BAND,
    GRID,
    Axes,
    Figure,
    add_legend,
    line_styles,
    new_figure,
    wrap,
)
from pfljax.report.tables import Table, format_rows
from pfljax.report.tidy import main_means, tidy
from pfljax.runs.folder import read_json
from pfljax.runs.names import FULL, WITHOUT
from pfljax.runs.result import Result
from pfljax.runs.settings import DATA_SETTINGS

VARIANT = re.compile(rf"(?P<rest>.*?)\s*(?P<variant>{FULL}|{WITHOUT} \S+)")
Over = Mapping[str, Sequence[Any]]  # the values of a sweep by name, without the seed


def read_axes(folders: Sequence[str | Path]) -> Over:
    """What the sweep of these run folders is over; {} if they are not of one sweep."""
    (place, *others) = {Path(folder).absolute().parents[1] for folder in folders}
    file = place / "sweep.json"
    if others or not file.exists():
        return {}
    over = read_json(file)["over"]
    return {name: values for name, values in over.items() if name != "seed"} or {"": []}


def default_columns(over: Over) -> str | None:
    """The setting of the data that is swept, if it is one of several axes."""
    of_data = [name for name in over if name in DATA_SETTINGS and len(over[name]) > 1]
    return of_data[0] if len(of_data) == 1 and len(over) > 1 else None


def summarise(
    groups: Sequence[Group], frame: Frame, columns: str | None, over: Over
) -> tuple[Table | None, list[str]]:
    """(the table to show first, sentences on the choice by validation examples)."""
    parts = _without_table(groups, frame)
    if parts is not None and columns is None:
        return parts, []
    if columns is None:
        return None, overview.choose_on_validation(frame) if over else []
    labels: dict[str, list[str]] = {}
    for group in groups:
        value = axis_text(group.experiment, columns)
        labels.setdefault(value, []).append(group.label)
    sentences = []
    for value, methods in labels.items():
        part = frame[frame.method.isin(methods)]
        names = [label_without(label, columns, value) for label in part.method]
        where = f"At {value}, validation examples"
        sentences += overview.choose_on_validation(part.assign(method=names), where)
    return columns_table(groups, frame, columns, over), sentences


def _without_table(groups: Sequence[Group], frame: Frame) -> Table | None:
    """What each part is worth: a row for each point without it; None without any."""
    lead = read_lead(frame)
    means = main_means(frame)
    variants: dict[str, dict[str, pairs.Scores]] = {}
    for group in groups:
        scores = pairs.make_scores(group, means.get(group.label, {}), lead)
        found = VARIANT.fullmatch(group.runs[0].label)
        if found and scores.means:
            variants.setdefault(found["rest"], {})[found["variant"]] = scores
    rows = []
    # The difference, its p value and its interval.
    columns = pairs.list_columns(lead)[:4]
    for rest, of_rest in variants.items():
        full = of_rest.pop(FULL, None)
        if full is None or not of_rest:
            continue
        texts = format_rows(pairs.against(full, [*of_rest.values()]), columns)
        named = zip(of_rest.items(), texts, strict=True)
        mean = _mean(full, lead)
        rows.append([f"{rest} {FULL}".strip(), mean, *[""] * len(columns)])
        for (name, scores), cells in named:
            rows.append([f"{rest} {name}".strip(), _mean(scores, lead), *cells])
    if not rows:
        return None
    header = ["Method", f"Test {lead.short}", *(column.title for column in columns)]
    title = "Without one part"
    return Table(title, header, rows, note=lead.fill(NOTES[title]))


def _mean(scores: pairs.Scores, lead: Lead) -> str:
    return lead.number(lead.sign * float(np.mean([*scores.means.values()])))


def sweep_figures(runs: Sequence[Result], over: Over) -> dict[str, Figure]:
    """The figures of the runs of a sweep by name; `over` is what it was over."""
    groups = group_runs(runs)
    axes = {name: values for name, values in over.items() if name != "seed"}
    return figures(groups, tidy(groups), axes)


def figures(groups: Sequence[Group], frame: Frame, over: Over) -> dict[str, Figure]:
    """The metric over the number with most values, and over two axes as a map."""
    axes = {name: values for name, values in over.items() if len(values) > 1}
    numbers = {n: v for n, v in axes.items() if all(map(_is_number, v))}
    if not numbers:
        return {}
    lead = read_lead(frame)
    means = {
        method: {seed: lead.scale * mean for seed, mean in seeds.items()}
        for method, seeds in main_means(frame).items()
    }
    along = max(numbers, key=lambda name: len(numbers[name]))
    drawn = {"accuracy": _draw_along(groups, means, along, lead)}
    if len(axes) == 2:
        # Names are longer than numbers, and stand beside their rows.
        across, down = sorted(axes, key=lambda name: name not in numbers)
        drawn["accuracy_map"] = _draw_map(groups, means, across, down, lead)
    return drawn


Means = Mapping[str, Mapping[int, float]]  # as shown, by method and seed


def _draw_along(
    groups: Sequence[Group], means: Means, along: str, lead: Lead
) -> Figure:
    """A line for each point without the number, over its values; bands over seeds."""
    lines: dict[str, dict[float, np.ndarray]] = {}
    for group in groups:
        text = axis_text(group.experiment, along)
        label = label_without(group.runs[0].label, along, text)
        if label == f"{along}={text}":
            label = group.experiment.algorithm.short_name
        seeds = np.array([*means.get(group.label, {}).values()])
        if len(seeds):
            lines.setdefault(label, {})[float(text)] = seeds
    figure, (axes,) = new_figure(6.4, 3.6)
    values = sorted({value for line in lines.values() for value in line})
    place = _set_scale(axes, values)
    styles = line_styles(lines)
    for label, line in lines.items():
        at = sorted(line)
        x = [place[value] for value in at]
        mean = np.array([line[value].mean() for value in at])
        std = np.array([np.std(line[v], ddof=len(line[v]) > 1) for v in at])
        axes.fill_between(
            x, mean - std, mean + std, color=styles[label]["color"], **BAND
        )
        axes.plot(x, mean, marker="o", label=wrap(label), **styles[label])
    axes.set(xlabel=along, ylabel=f"test {lead.label}, mean over clients")
    axes.grid(axis="y", **GRID)
    if len(lines) > 1:
        add_legend(axes)
    return figure


def _set_scale(axes: Axes, values: Sequence[float]) -> dict[float, float]:
    """The places of the values: on a logarithmic axis if they span a power of ten.

    With a zero or less among such values, they are drawn in even steps.
    """
    positive = [value for value in values if value > 0]
    is_wide = len(positive) > 1 and positive[-1] > SPAN * positive[0]
    if is_wide and len(positive) == len(values):
        axes.set_xscale("log")
    if is_wide and len(positive) < len(values):
        axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        return {value: float(place) for place, value in enumerate(values)}
    return {value: value for value in values}


def _draw_map(
    groups: Sequence[Group], means: Means, across: str, down: str, lead: Lead
) -> Figure:
    """The mean at each pair of values of two axes."""
    cells = {}
    for each in groups:
        if means.get(each.label):
            column, row = (axis_text(each.experiment, name) for name in (across, down))
            if down == "algorithm":  # as it was given, without other options
                row = label_without(each.runs[0].label, across, column)
            cells[row, column] = np.mean([*means[each.label].values()])
    rows, columns = (
        sorted({key[axis] for key in cells}, key=_order) for axis in (0, 1)
    )
    values = np.array([[cells.get((r, c), np.nan) for c in columns] for r in rows])
    figure, (axes,) = new_figure(1.8 + 0.8 * len(columns), 1.2 + 0.45 * len(rows))
    form = ".1f" if lead.is_share else ".3g"
    texts = [[f"{value:{form}}" for value in row] for row in values]
    heat_map(axes, values, f"test {lead.label}", texts)
    axes.set_xticks(range(len(columns)), [wrap(each) for each in columns])
    axes.set_yticks(range(len(rows)), [wrap(each) for each in rows])
    axes.set(xlabel=across, ylabel=down)
    return figure


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _order(text: str) -> tuple[float, str]:
    """Numbers by their value, then texts."""
    try:
        return float(text), ""
    except ValueError:
        return float("inf"), text
