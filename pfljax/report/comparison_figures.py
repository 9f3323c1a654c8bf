"""Figures of several methods: differences to the best, curves, and clients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pfljax.evaluation.significance import LEVEL
from pfljax.report.curves import Curve, Curves, group_curves
from pfljax.report.frames import Frame
from pfljax.report.runs import client_accuracy, is_local
from pfljax.report.seeds import Group, group_runs
from pfljax.report.style import (
    BAND,
    GREY,
    GRID,
    PALETTE,
    Axes,
    Figure,
    add_legend,
    integer_ticks,
    line_styles,
    merge_equal,
    new_figure,
    plot_line,
    wrap,
)
from pfljax.report.tidy import tidy
from pfljax.runs.result import Result

AXES = {  # what curves may go over -> (name of the axis, scale)
    "rounds": ("round", 1),
    "bytes": ("sent up and down by all clients (MB)", 1e-6),
    "seconds": ("virtual seconds", 1),
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
    curves = group_curves(frame)
    local = local_label(groups)
    figures = {
        "curves_by_rounds": draw_curves(curves, local),
        "curves_by_bytes": draw_curves(curves, local, "bytes"),
        "accuracy_over_clients": accuracy_over_clients(groups),
    }
    if frame.clock.notna().all():
        figures["curves_by_seconds"] = draw_curves(curves, local, "seconds")
    return figures


def comparison_curves(runs: Sequence[Result], by: str = "rounds") -> Figure:
    """Mean accuracy over "rounds", "bytes" or "seconds", with ± std over seeds."""
    groups = group_runs(runs)
    return draw_curves(group_curves(tidy(groups)), local_label(groups), by)


def local_label(groups: Sequence[Group]) -> str | None:
    """The label of local training, which is drawn grey."""
    labels = [group.label for group in groups if is_local(group.experiment)]
    return labels[0] if labels else None


def draw_curves(curves: Curves, local: str | None = None, by: str = "rounds") -> Figure:
    """The curves of methods, by seed; see `comparison_curves`."""
    figure, (axes,) = new_figure(6.4, 3.8)
    styles = method_styles(list(curves), local)
    drawn = [_average_seeds(list(seeds.values()), by) for seeds in curves.values()]
    last = max((x[-1] for x, _ in drawn if len(x)), default=0)
    stacked = [np.vstack([x, accuracy]) for x, accuracy in drawn]
    for i, label in merge_equal(list(curves), stacked):
        _draw_curve(axes, *drawn[i], {**styles[i], "label": wrap(label)}, last)
    axes.set(xlabel=AXES[by][0], ylabel="test accuracy (%), mean over clients")
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


def _average_seeds(curves: Sequence[Curve], by: str) -> tuple[np.ndarray, np.ndarray]:
    """(x f[T], accuracy in percent f[n, T]) at the rounds that all seeds evaluated."""
    rounds = curves[0].rounds
    for other in curves[1:]:
        rounds = np.intersect1d(rounds, other.rounds)
    x = []
    accuracy = []
    for curve in curves:
        is_common = np.isin(curve.rounds, rounds)
        x.append(AXES[by][1] * getattr(curve, by)[is_common])
        accuracy.append(100 * curve.accuracy[is_common])
    return np.mean(x, axis=0), np.stack(accuracy)


def _draw_curve(
    axes: Axes,
    x: np.ndarray,
    accuracy: np.ndarray,
    style: dict[str, Any],
    last: float,
) -> None:
    """Draws accuracy [n, T] over x [T]; `last` is the end of the axis."""
    mean = accuracy.mean(0)
    # Seeds that were evaluated at no common round have no curve.
    if not len(x):
        return
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
    labels = [group.label for group in groups]
    styles = method_styles(labels, local_label(groups))
    figure, (axes,) = new_figure(6.4, 3.8)
    # Quantiles, for the runs may have different numbers of clients.
    share = np.linspace(0, 100, 101)
    quantiles = [_quantiles(group, 100 - share) for group in groups]
    for i, label in merge_equal(labels, quantiles):
        if len(quantiles[i]):
            axes.plot(share, quantiles[i], label=wrap(label), **styles[i])
    axes.set(xlim=(0, 100), xlabel="clients, from best to worst (%)")
    axes.set_ylabel("test accuracy (%)")
    axes.grid(axis="y", **GRID)
    add_legend(axes)
    return figure


def _quantiles(group: Group, percent: np.ndarray) -> np.ndarray:
    """Quantiles over clients of the accuracy in percent; empty if no seed has it."""
    quantiles = []
    for run in group.runs:
        accuracy = client_accuracy(run)
        if accuracy is not None and np.isfinite(accuracy).any():
            quantiles.append(np.nanpercentile(100 * accuracy, percent))
    return np.mean(quantiles, axis=0) if quantiles else np.empty(0)


def method_styles(labels: Sequence[str], local: str | None) -> list[dict[str, Any]]:
    """A colour for each method, whatever the order of the folders; local is grey."""
    in_order = sorted(labels)
    styles = dict(zip(in_order, line_styles(in_order, local), strict=True))
    return [styles[label] for label in labels]
