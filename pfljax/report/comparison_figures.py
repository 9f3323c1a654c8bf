"""Figures of several methods: differences to the best, curves, and clients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pfljax.evaluation.significance import LEVEL
from pfljax.report.frames import Frame
from pfljax.report.lead import Lead, read_lead
from pfljax.report.runs import is_local
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


def differences(with_best: Frame, lead: Lead) -> Figure | None:
    """The other methods' differences to the best, with their 95 % intervals.

    None if there is no comparison.
    """
    rows = with_best.head(MOST)
    if rows.empty:
        return None
    labels = [wrap(method) for method in rows.against]
    lines = sum(max(1.6, label.count("\n") + 1) for label in labels)
    figure, (axes,) = new_figure(6.4, 1.0 + 0.2 * lines)
    # Of the metric itself: what is worse by an error lies to the right.
    scale = -lead.sign * lead.scale
    for y, row in enumerate(rows.itertuples()):
        is_sure = row.p_holm < LEVEL
        low, high = scale * row.high, scale * row.low
        axes.plot([low, high], [y, y], color=PALETTE[0], linewidth=1.6)
        fill = PALETTE[0] if is_sure else "white"
        x = scale * row.difference
        axes.plot(x, y, "o", color=PALETTE[0], markerfacecolor=fill)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(rows)), labels, parse_math=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    unit = "points of " if lead.is_share else ""
    what = f"{unit}{lead.title}, less {wrap(rows.method.iloc[0])}"
    axes.set_xlabel(f"{what} (hollow: not significant)")
    axes.grid(axis="x", **GRID)
    axes.set_axisbelow(True)
    return figure


def draw_comparison(groups: Sequence[Group], frame: Frame) -> dict[str, Figure]:
    """The figures of a comparison by name, beside that of differences."""
    styles = method_styles(groups)
    figures = {
        "curves_by_rounds": draw_curves(frame, styles),
        "curves_by_bytes": draw_curves(frame, styles, "bytes"),
        "accuracy_over_clients": metric_over_clients(groups, read_lead(frame)),
    }
    if frame.clock.notna().all():
        figures["curves_by_seconds"] = draw_curves(frame, styles, "seconds")
    return figures


def comparison_curves(runs: Sequence[Result], by: str = "rounds") -> Figure:
    """The mean metric over "rounds", "bytes" or "seconds", with ± std over seeds."""
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
    lead = read_lead(frame)
    rows = select_main(frame[frame.leads])
    rows = rows.assign(
        mb=(rows.bytes_up + rows.bytes_down) / 1e6, mean=lead.scale * rows["mean"]
    )
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
    axes.set(xlabel=title, ylabel=f"test {lead.label}, mean over clients")
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
    """f[1 + seeds, T]: the column and the means at the rounds of all."""
    rows = rows.assign(x=rows[column])
    wide = rows.pivot(index="round", columns="seed", values=["x", "mean"])
    wide = wide[wide.x.notna().all(axis=1)]
    return np.vstack([wide.x.mean(axis=1), wide["mean"].T])


def _draw_curve(axes: Axes, curve: np.ndarray, last: float, **style: Any) -> None:
    """Draws a curve of `_average_seeds`; `last` is the end of the axis."""
    x, means = curve[0], curve[1:]
    mean = means.mean(0)
    # A method that sends nothing has no length on the axis of bytes.
    if last > 0 and x[-1] == 0:
        axes.plot([0, last], [mean[-1], mean[-1]], **style)
        return
    if len(means) > 1:
        std = means.std(axis=0, ddof=1)
        axes.fill_between(x, mean - std, mean + std, color=style["color"], **BAND)
    plot_line(axes, x, mean, **style)


def metric_over_clients(groups: Sequence[Group], lead: Lead) -> Figure:
    """The clients of each method from best to worst: quantiles, averaged over seeds."""
    styles = method_styles(groups)
    figure, (axes,) = new_figure(6.4, 3.8)
    # Quantiles, for the runs may have different numbers of clients.
    share = np.linspace(0, 100, 101)
    percent = 100 - share if lead.sign > 0 else share
    quantiles = {group.label: _quantiles(group, percent, lead) for group in groups}
    for method, label in merge_equal(quantiles).items():
        axes.plot(share, quantiles[method], label=wrap(label), **styles[method])
    axes.set(xlim=(0, 100), xlabel="clients, from best to worst (%)")
    axes.set_ylabel(f"test {lead.label}")
    axes.grid(axis="y", **GRID)
    add_legend(axes)
    return figure


def _quantiles(group: Group, percent: np.ndarray, lead: Lead) -> np.ndarray:
    """Quantiles over clients of the metric as it is shown."""
    name = f"personal/test/{lead.name}"
    last = [lead.scale * run.clients[name][-1] for run in group.runs]
    return np.mean([np.nanpercentile(values, percent) for values in last], axis=0)
