"""Figures of several runs: curves by what was spent, and bars of the final numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pfljax.report import spent
from pfljax.report.clients import judged_clients
from pfljax.report.groups import Group, group_runs
from pfljax.report.runs import Run, accuracy_curve, judged_records, number
from pfljax.report.statistics import over_seeds, std_over_seeds
from pfljax.report.style import (
    BAND,
    GRID,
    INK,
    label_ends,
    line_styles,
    new_figure,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTIONS = {
    "curves_by_round": "Mean test accuracy over all clients of the model that each "
    "method is judged by (see the table); line: mean over seeds, band: ± one sample "
    "standard deviation over seeds. A dotted line leads a shorter run to its name.",
    "curves_by_bytes": "The same curves over the bytes sent up and down by all clients "
    "(MB = 1e6 bytes). A method that sends nothing is a level line at its last value.",
    "curves_by_seconds": "The same curves over virtual seconds: of downloads, local "
    "steps and uploads by the devices of the clients, which nothing was measured of.",
    "accuracy_over_clients": "Test accuracy at the last round of the clients of "
    "each method, sorted from the best to the worst off; each place is a mean over "
    "seeds.",
    "bars": "Left: test accuracy at the last round, mean over clients; bar: mean over "
    "seeds, whisker: ± one sample standard deviation over seeds, dots: seeds. Right: "
    "population standard deviation over clients inside a run, the same way.",
}


def comparison_curves(
    runs: Sequence[Run], by: str = "round", log: bool = False
) -> "Figure":
    """Mean accuracy over rounds, bytes or seconds, mean and ± std over seeds.

    Args:
        runs: seeds of a method are found by `group_runs`.
        by: "round", "bytes" or "seconds".
        log: a logarithmic axis of bytes or seconds.
    """
    if by not in spent.AXES:
        raise ValueError(f"by is {by!r}; expected 'round', 'bytes' or 'seconds'")
    groups = group_runs(runs)
    figure, (axes,) = new_figure(6.4, 3.8)
    styles = group_styles(groups)
    curves = [seed_curves(group, by) for group in groups]
    last_x = [x[-1] for x, _ in curves if len(x)]
    far = max(last_x, default=0)
    ends = []
    for group, style, curve in zip(groups, styles, curves, strict=True):
        x, accuracy = curve
        # Seeds that were evaluated at no common round have no curve.
        if len(x):
            last = _curve(axes, x, accuracy, style, far)
            ends.append((last, wrapped(group.label), style["color"]))
    # Labels go last: they are spread within the final limits.
    _finish_curves(axes, by, log, far)
    label_ends(axes, ends)
    return figure


def comparison_clients(runs: Sequence[Run]) -> "Figure":
    """Each method's clients from best to worst: quantiles, their mean over seeds."""
    groups = group_runs(runs)
    styles = group_styles(groups)
    figure, (axes,) = new_figure(6.4, 3.8)
    # Quantiles, for the runs may have different numbers of clients.
    share = np.linspace(0, 100, 101)
    ends = []
    for group, style in zip(groups, styles, strict=True):
        quantiles = _client_quantiles(group, 100 - share)
        if quantiles:
            mean = np.mean(quantiles, axis=0)
            axes.plot(share, mean, **style)
            ends.append((mean[-1], wrapped(group.label), style["color"]))
    axes.set(xlim=(0, 100), xlabel="clients, from best to worst (%)")
    axes.set_ylabel("test accuracy (%)")
    axes.grid(axis="y", **GRID)
    label_ends(axes, ends)
    return figure


def _client_quantiles(group: Group, percent: np.ndarray) -> list[np.ndarray]:
    """Quantiles over clients of the accuracy in percent, of each seed that has it."""
    quantiles = []
    for run in group.runs:
        accuracy = judged_clients(run)
        if accuracy is None:
            continue
        # Clients without test rows are NaN.
        finite = 100 * accuracy[np.isfinite(accuracy)]
        if len(finite):
            quantiles.append(np.percentile(finite, percent))
    return quantiles


def comparison_bars(runs: Sequence[Run]) -> "Figure":
    """Final accuracy and its spread over clients, a bar a method, best on top."""
    groups = group_runs(runs)
    styles = group_styles(groups)
    finals = [_finals(group) for group in groups]
    means = [over_seeds(final.mean)[0] for final in finals]
    # From the bottom up: a method without a number lies lowest.
    order = np.argsort(np.nan_to_num(means, nan=-1), kind="stable")
    labels = [wrapped(groups[i].label) for i in order]
    figure, panels = new_figure(
        8.0,
        _bars_height(labels),
        2,
        sharey=True,
        width_ratios=[2.2, 1],
    )
    left, right = panels
    for y, i in enumerate(order):
        colour = styles[i]["color"]
        _bar(left, y, finals[i].mean, colour)
        _bar(right, y, finals[i].std, colour)
    left.set_yticks(range(len(groups)), labels, parse_math=False)
    # Beyond 100 there is room for the numbers, but no axis.
    left.set(xlabel="test accuracy (%), mean over clients", xlim=(0, 115))
    left.set_xticks(range(0, 101, 20))
    left.spines["bottom"].set_bounds(0, 100)
    right.set_xlabel("std over clients (points)")
    widest = right.get_xlim()[1]
    right.set_xlim(0, 1.25 * widest)
    for axes in panels:
        axes.tick_params(axis="y", length=0)
    return figure


def _bars_height(labels: Sequence[str]) -> float:
    """Inches for a bar a label, as high as the label of most lines needs."""
    lines = max(label.count("\n") + 1 for label in labels)
    a_bar = max(0.42, 0.2 * lines)
    return 0.9 + a_bar * len(labels)


def group_styles(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """A colour for each method, by its place in the sorted labels; local is grey."""
    baselines = []
    for group in groups:
        if group.runs[0].config["algorithm"] == "local":
            baselines.append(group.label)
    plain = baselines[0] if baselines else None
    # Sorted: the order of the folders must not change a method's colour.
    labels = sorted(group.label for group in groups)
    styles = line_styles(labels, plain)
    style_of = dict(zip(labels, styles, strict=True))
    return [style_of[group.label] for group in groups]


def seed_curves(group: Group, by: str = "round") -> tuple[np.ndarray, np.ndarray]:
    """(x f[T], accuracy in percent f[n, T]) at the rounds that all n seeds evaluated.

    x is the round, or the mean over seeds of the MB sent or the seconds so far.
    """
    curves = [accuracy_curve(run) for run in group.runs]
    # A mean over fewer seeds at some rounds would jump there.
    rounds, _ = curves[0]
    for other_rounds, _ in curves[1:]:
        rounds = np.intersect1d(rounds, other_rounds)
    common = []
    for own_rounds, means in curves:
        is_common = np.isin(own_rounds, rounds)
        common.append(100 * means[is_common])
    accuracy = np.stack(common)
    if by == "round":
        return rounds.astype(float), accuracy
    x = [spent.at(run, rounds, by) for run in group.runs]
    return np.mean(x, axis=0), accuracy


class _Final(NamedTuple):
    """Accuracy in percent after the last round, f[n] over seeds."""

    mean: np.ndarray  # over clients
    std: np.ndarray  # over clients


def _finals(group: Group) -> _Final:
    """The final accuracy of a method; NaN for a seed that has none."""
    means = []
    stds = []
    for run in group.runs:
        accuracy = _judged_accuracy(run)
        means.append(number(accuracy.get("mean")))
        stds.append(number(accuracy.get("std")))
    return _Final(
        mean=100 * np.array(means, float),
        std=100 * np.array(stds, float),
    )


def _judged_accuracy(run: Run) -> dict[str, Any]:
    """Statistics over clients of the judged model; empty where there are none."""
    records = judged_records(run.summary["last"]["evaluations"])
    if not records:
        return {}
    return records[0]["metrics"].get("accuracy") or {}


def _curve(
    axes: "Axes", x: np.ndarray, accuracy: np.ndarray, style: dict[str, Any], far: float
) -> float:
    """Draws one method: x [T], accuracy [n, T]; returns the mean at its end.

    A curve that ends before `far` goes on as a thin dotted line to its label.
    """
    mean = accuracy.mean(0)
    last = float(mean[-1])
    # A method that sends nothing has no length on the axis of bytes: a level line.
    if far > 0 and x[-1] == 0:
        axes.plot([0, far], [last, last], **style)
        return last
    colour = style["color"]
    # One seed has no spread: its std is NaN.
    if len(accuracy) > 1:
        std = std_over_seeds(accuracy)
        axes.fill_between(x, mean - std, mean + std, color=colour, **BAND)
    marker = "o" if len(x) == 1 else None
    axes.plot(x, mean, marker=marker, **style)
    if x[-1] < far:
        axes.plot(
            [x[-1], far],
            [last, last],
            color=colour,
            linestyle=":",
            linewidth=0.8,
        )
    return last


def _bar(axes: "Axes", y: int, values: np.ndarray, colour: str) -> None:
    """One bar: mean, whisker of ± std over seeds, a dot a seed, and the number."""
    mean, std, count = over_seeds(values)
    text = "no number"
    right = 0.0
    if count:
        axes.barh(y, mean, height=0.62, color=colour, alpha=0.45)
        text = f"{mean:.1f}"
        right = mean
    if count > 1:
        axes.errorbar(mean, y, xerr=std, color=INK, capsize=3, linewidth=1)
        # Seeds side by side, for equal ones would hide one another.
        lanes = y + np.linspace(-0.18, 0.18, len(values))
        axes.plot(values, lanes, "o", color=colour, markersize=3.5)
        text = f"{mean:.1f} ± {std:.1f}"
        right = max(mean + std, np.nanmax(values))
    axes.annotate(
        text,
        (right, y),
        (5, 0),
        textcoords="offset points",
        va="center",
        size=9,
    )


def _finish_curves(axes: "Axes", by: str, log: bool, far: float) -> None:
    """Names the axes and fits the limits."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_ylabel("test accuracy (%), mean over clients")
    axes.grid(axis="y", **GRID)
    axes.set_xlabel(spent.AXES[by])
    if by != "round" and log and far > 0:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(right=far)
    else:
        axes.set_xlim(0, far or 1)
