"""Figures of several methods: differences to the best, curves, and clients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pfljax.evaluation.significance import LEVEL
from pfljax.report.frames import Frame
from pfljax.report.runs import PERSONAL, is_local
from pfljax.report.seeds import Group, group_runs
from pfljax.report.style import (
    BAND,
    GREY,
    GRID,
    PALETTE,
    Axes,
    Figure,
    Style,
    add_legend,
    integer_ticks,
    line_styles,
    merge_equal,
    new_figure,
    plot_line,
    wrap,
)
from pfljax.report.tidy import select_main, tidy
from pfljax.runs.result import Result

AXES = {  # what curves may go over -> (column, name of the axis)
    "rounds": ("round", "round"),
    "bytes": ("mb", "sent up and down by all clients (MB)"),
    "seconds": ("clock", "virtual seconds"),
}
MOST = 30  # methods in the figure of differences


def differences(with_best: Frame) -> Figure | None:
    """The other methods' differences to the best, with their 95 % intervals.

    None if there is no comparison.
    """
    rows = with_best.head(MOST)
    if rows.empty:
        return None
    labels = [wrap(method) for method in rows.against]
    lines = sum(max(1.6, label.count("\n") + 1) for label in labels)
    figure, (axes,) = new_figure(6.4, 1.0 + 0.2 * lines)
    for y, row in enumerate(rows.itertuples()):
        is_sure = row.p_holm < LEVEL
        low, high = -100 * row.high, -100 * row.low
        axes.plot([low, high], [y, y], color=PALETTE[0], linewidth=1.6)
        fill = PALETTE[0] if is_sure else "white"
        axes.plot(-100 * row.difference, y, "o", color=PALETTE[0], markerfacecolor=fill)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(rows)), labels, parse_math=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(f"points of accuracy, less {wrap(rows.method.iloc[0])}")
    axes.grid(axis="x", **GRID)
    axes.set_axisbelow(True)
    return figure


def draw_comparison(groups: Sequence[Group], frame: Frame) -> dict[str, Figure]:
    """The figures of a comparison by name, beside that of differences."""
    styles = method_styles(groups)
    figures = {
        "curves_by_rounds": draw_curves(frame, styles),
        "curves_by_bytes": draw_curves(frame, styles, "bytes"),
        "accuracy_over_clients": accuracy_over_clients(groups),
    }
    if frame.clock.notna().all():
        figures["curves_by_seconds"] = draw_curves(frame, styles, "seconds")
    return figures


def comparison_curves(runs: Sequence[Result], by: str = "rounds") -> Figure:
    """Mean accuracy over "rounds", "bytes" or "seconds", with ± std over seeds."""
    groups = group_runs(runs)
    return draw_curves(tidy(groups), method_styles(groups), by)


def method_styles(groups: Sequence[Group]) -> dict[str, Style]:
    """A colour for each method, whatever the order of the folders; local is grey."""
    local = [group.label for group in groups if is_local(group.experiment)]
    labels = sorted(group.label for group in groups)
    return line_styles(labels, plain=local[0] if local else None)


def draw_curves(frame: Frame, styles: dict[str, Style], by: str = "rounds") -> Figure:
    """The curves of the methods in a tidy table; see `comparison_curves`."""
    column, title = AXES[by]
    rows = select_main(frame[frame.metric == "accuracy"])
    rows = rows.assign(mb=(rows.bytes_up + rows.bytes_down) / 1e6)
    curves = {
        str(method): _average_seeds(runs, column)
        for method, runs in rows.groupby("method", sort=False)
    }
    last = max((curve[0, -1] for curve in curves.values() if curve.size), default=0)
    figure, (axes,) = new_figure(6.4, 3.8)
    for method, label in merge_equal(curves).items():
        # Seeds that were evaluated at no common round have no curve.
        if curves[method].size:
            _draw_curve(axes, curves[method], last, label=wrap(label), **styles[method])
    axes.set(xlabel=title, ylabel="test accuracy (%), mean over clients")
    axes.grid(axis="y", **GRID)
    if by == "bytes" and last > 0:
        axes.set_xscale("log")
        axes.set_xlim(right=last)
    else:
        axes.set_xlim(0, last or 1)
    if by == "rounds":
        integer_ticks(axes.xaxis)
    add_legend(axes)
    return figure


def _average_seeds(rows: Frame, column: str) -> np.ndarray:
    """f[1 + seeds, T]: the column and accuracies in percent at the rounds of all."""
    rows = rows.assign(x=rows[column])
    wide = rows.pivot(index="round", columns="seed", values=["x", "mean"])
    wide = wide[wide.x.notna().all(axis=1)]
    return np.vstack([wide.x.mean(axis=1), 100 * wide["mean"].T])


def _draw_curve(axes: Axes, curve: np.ndarray, last: float, **style: Any) -> None:
    """Draws a curve of `_average_seeds`; `last` is the end of the axis."""
    x, accuracy = curve[0], curve[1:]
    mean = accuracy.mean(0)
    # A method that sends nothing has no length on the axis of bytes.
    if last > 0 and x[-1] == 0:
        axes.plot([0, last], [mean[-1], mean[-1]], **style)
        return
    if len(accuracy) > 1:
        std = accuracy.std(axis=0, ddof=1)
        axes.fill_between(x, mean - std, mean + std, color=style["color"], **BAND)
    plot_line(axes, x, mean, **style)


def accuracy_over_clients(groups: Sequence[Group]) -> Figure:
    """The clients of each method from best to worst: quantiles, averaged over seeds."""
    styles = method_styles(groups)
    figure, (axes,) = new_figure(6.4, 3.8)
    # Quantiles, for the runs may have different numbers of clients.
    share = np.linspace(0, 100, 101)
    quantiles = {group.label: _quantiles(group, 100 - share) for group in groups}
    for method, label in merge_equal(quantiles).items():
        axes.plot(share, quantiles[method], label=wrap(label), **styles[method])
    axes.set(xlim=(0, 100), xlabel="clients, from best to worst (%)")
    axes.set_ylabel("test accuracy (%)")
    axes.grid(axis="y", **GRID)
    add_legend(axes)
    return figure


def _quantiles(group: Group, percent: np.ndarray) -> np.ndarray:
    """Quantiles over clients of the accuracy in percent."""
    last = [100 * run.clients[PERSONAL][-1] for run in group.runs]
    return np.mean([np.nanpercentile(values, percent) for values in last], axis=0)
