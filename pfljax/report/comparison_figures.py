"""Figures of several methods: differences to the best, curves, and clients."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax.evaluation.significance import LEVEL
from pfljax.report.curves import Curve, make_curve
from pfljax.report.frames import Frame
from pfljax.report.groups import Group, group_runs
from pfljax.report.runs import Run, main_clients
from pfljax.report.style import (
    BAND,
    GREY,
    GRID,
    PALETTE,
    integer_ticks,
    label_ends,
    line_styles,
    merge_equal,
    new_figure,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = {  # what curves may go over -> (name of the axis, scale)
    "rounds": ("round", 1),
    "bytes": ("sent up and down by all clients (MB)", 1e-6),
    "seconds": ("virtual seconds", 1),
}
CAPTIONS = {
    "differences": "Difference to the best method in points of test accuracy, with its "
    "95 % interval. A filled dot marks a difference that remains after Holm's "
    "correction at 5 %.",
    "curves_by_rounds": "Test accuracy, mean over all clients; line: mean over seeds, "
    "band: ± one standard deviation over seeds. A dotted line leads to the name.",
    "curves_by_bytes": "The same curves over the bytes sent by all clients. A method "
    "that sends nothing is a level line at its last value.",
    "curves_by_seconds": "The same curves over virtual seconds.",
    "accuracy_over_clients": "Test accuracy of the clients at the last round, from the "
    "best to the worst, as means over seeds.",
}
MOST = 30  # methods in the figure of differences


def differences(comparisons: Frame) -> "Figure | None":
    """The other methods' differences to the best, with their 95 % intervals.

    None if there is no comparison.
    """
    rows = comparisons[comparisons.with_best == True].head(MOST)  # noqa: E712
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


def comparison_curves(runs: Sequence[Run], by: str = "rounds") -> "Figure":
    """Mean accuracy over "rounds", "bytes" or "seconds", with ± std over seeds."""
    groups = group_runs(runs)
    curves = {g.label: {r.seed: make_curve(r) for r in g.runs} for g in groups}
    return draw_curves(curves, local_label(groups), by)


def local_label(groups: Sequence[Group]) -> str | None:
    """The label of local training, which is drawn grey."""
    labels = [g.label for g in groups if g.config["algorithm"] == "local"]
    return labels[0] if labels else None


def draw_curves(
    curves: Mapping[str, Mapping[int, Curve]],
    local: str | None = None,
    by: str = "rounds",
) -> "Figure":
    """The curves of methods, by seed; see `comparison_curves`."""
    figure, (axes,) = new_figure(6.4, 3.8)
    styles = method_styles(list(curves), local)
    drawn = [_over_seeds(list(seeds.values()), by) for seeds in curves.values()]
    far = max((x[-1] for x, _ in drawn if len(x)), default=0)
    ends = []
    stacked = [np.vstack([x, accuracy]) for x, accuracy in drawn]
    for i, label in merge_equal(list(curves), stacked):
        x, accuracy = drawn[i]
        # Seeds that were evaluated at no common round have no curve.
        if len(x):
            _draw_curve(axes, x, accuracy, styles[i], far)
            ends.append((accuracy.mean(0)[-1], wrap(label), styles[i]["color"]))
    axes.set(xlabel=AXES[by][0], ylabel="test accuracy (%), mean over clients")
    axes.grid(axis="y", **GRID)
    if by == "bytes" and far > 0:
        axes.set_xscale("log")
        axes.set_xlim(right=far)
    else:
        axes.set_xlim(0, far or 1)
    if by == "rounds":
        integer_ticks(axes.xaxis)
    label_ends(axes, ends)
    return figure


def _over_seeds(curves: Sequence[Curve], by: str) -> tuple[np.ndarray, np.ndarray]:
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
    axes: "Axes", x: np.ndarray, accuracy: np.ndarray, style: dict[str, Any], far: float
) -> None:
    """Draws accuracy [n, T] over x [T]; a dotted line leads from its end to `far`."""
    mean = accuracy.mean(0)
    # A method that sends nothing has no length on the axis of bytes.
    if far > 0 and x[-1] == 0:
        axes.plot([0, far], [mean[-1], mean[-1]], **style)
        return
    if len(accuracy) > 1:
        std = accuracy.std(axis=0, ddof=1)
        axes.fill_between(x, mean - std, mean + std, color=style["color"], **BAND)
    one = {"marker": "o", "clip_on": False} if len(x) == 1 else {}
    axes.plot(x, mean, **one, **style)
    if x[-1] < far:
        dotted = {"color": style["color"], "linestyle": ":", "linewidth": 0.8}
        axes.plot([x[-1], far], [mean[-1], mean[-1]], **dotted)


def accuracy_over_clients(groups: Sequence[Group]) -> "Figure":
    """The clients of each method from best to worst: quantiles, averaged over seeds."""
    labels = [group.label for group in groups]
    styles = method_styles(labels, local_label(groups))
    figure, (axes,) = new_figure(6.4, 3.8)
    # Quantiles, for the runs may have different numbers of clients.
    share = np.linspace(0, 100, 101)
    quantiles = [_quantiles(group, 100 - share) for group in groups]
    ends = []
    for i, label in merge_equal(labels, quantiles):
        if len(quantiles[i]):
            axes.plot(share, quantiles[i], **styles[i])
            ends.append((quantiles[i][-1], wrap(label), styles[i]["color"]))
    axes.set(xlim=(0, 100), xlabel="clients, from best to worst (%)")
    axes.set_ylabel("test accuracy (%)")
    axes.grid(axis="y", **GRID)
    label_ends(axes, ends)
    return figure


def _quantiles(group: Group, percent: np.ndarray) -> np.ndarray:
    """Quantiles over clients of the accuracy in percent; empty if no seed has it."""
    quantiles = []
    for run in group.runs:
        accuracy = main_clients(run)
        if accuracy is not None and np.isfinite(accuracy).any():
            quantiles.append(np.nanpercentile(100 * accuracy, percent))
    return np.mean(quantiles, axis=0) if quantiles else np.empty(0)


def method_styles(labels: Sequence[str], local: str | None) -> list[dict[str, Any]]:
    """A colour for each method, whatever the order of the folders; local is grey."""
    in_order = sorted(labels)
    styles = dict(zip(in_order, line_styles(in_order, local), strict=True))
    return [styles[label] for label in labels]
