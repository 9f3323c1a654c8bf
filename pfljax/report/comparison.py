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
    seen_through,
    told_once,
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
    "bars": "Left: test accuracy at the last round, mean over clients; large dot: mean "
    "over seeds, whisker: ± one sample standard deviation over seeds, small dots: "
    "seeds. Right: population standard deviation over clients inside a run, the same "
    "way. The axes show the range of the methods and need not begin at 0.",
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
    drawn = [np.vstack([x, accuracy]) for x, accuracy in curves]
    styles = seen_through(styles, [accuracy.mean(0) for _, accuracy in curves])
    for place, label in told_once([group.label for group in groups], drawn):
        x, accuracy = curves[place]
        # Seeds that were evaluated at no common round have no curve.
        if len(x):
            last = _curve(axes, x, accuracy, styles[place], far)
            ends.append((last, wrapped(label), styles[place]["color"]))
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
    quantiles = [_client_quantiles(group, 100 - share) for group in groups]
    styles = seen_through(styles, quantiles)
    for place, label in told_once([group.label for group in groups], quantiles):
        # Without clients that have rows there is no curve.
        if len(quantiles[place]):
            axes.plot(share, quantiles[place], **styles[place])
            end = quantiles[place][-1]
            ends.append((end, wrapped(label), styles[place]["color"]))
    axes.set(xlim=(0, 100), xlabel="clients, from best to worst (%)")
    axes.set_ylabel("test accuracy (%)")
    axes.grid(axis="y", **GRID)
    label_ends(axes, ends)
    return figure


def _client_quantiles(group: Group, percent: np.ndarray) -> np.ndarray:
    """Quantiles over clients of the accuracy in percent, means over seeds.

    Empty where no seed has it.
    """
    quantiles = []
    for run in group.runs:
        accuracy = judged_clients(run)
        if accuracy is None:
            continue
        # Clients without test rows are NaN.
        finite = 100 * accuracy[np.isfinite(accuracy)]
        if len(finite):
            quantiles.append(np.percentile(finite, percent))
    return np.mean(quantiles, axis=0) if quantiles else np.empty(0)


def comparison_bars(runs: Sequence[Run]) -> "Figure":
    """Final accuracy and its spread over clients, a dot with error bars, best on top.

    The axes show what lies between the methods: they need not begin at 0.
    """
    groups = group_runs(runs)
    styles = group_styles(groups)
    finals = [_finals(group) for group in groups]
    means = [over_seeds(final.mean)[0] for final in finals]
    # From the bottom up: a method without a number lies lowest.
    order = np.argsort(np.nan_to_num(means, nan=-1), kind="stable")
    labels = [wrapped(groups[i].label) for i in order]
    height = _bars_height(labels)
    figure, panels = new_figure(8.0, height, 2, sharey=True, width_ratios=[2.2, 1])
    left, right = panels
    for y, i in enumerate(order):
        colour = styles[i]["color"]
        _dot(left, y, finals[i].mean, colour)
        _dot(right, y, finals[i].std, colour)
    left.set_yticks(range(len(groups)), labels, parse_math=False)
    left.set(xlabel="test accuracy (%), mean over clients")
    left.set_ylim(-0.6, len(groups) - 0.4)
    right.set_xlabel("std over clients (points)")
    for axes in panels:
        axes.margins(x=0.08)
        axes.grid(**GRID)
        axes.set_axisbelow(True)
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
    # One evaluation is a dot, which may stand on the edge of the axes.
    one = {"marker": "o", "clip_on": False} if len(x) == 1 else {}
    axes.plot(x, mean, **one, **style)
    if x[-1] < far:
        axes.plot(
            [x[-1], far],
            [last, last],
            color=colour,
            linestyle=":",
            linewidth=0.8,
        )
    return last


def _dot(axes: "Axes", y: int, values: np.ndarray, colour: str) -> None:
    """The mean, an error bar of ± std over seeds, a small dot a seed, and the number.

    The number stands right of the axes, where no dot can lie on it.
    """
    mean, std, count = over_seeds(values)
    text = f"{mean:.1f}" if count else "no number"
    if count:
        axes.plot(mean, y, "o", color=colour, markersize=8)
    if count > 1:
        axes.errorbar(mean, y, xerr=std, color=INK, capsize=3, linewidth=1)
        # Seeds side by side, for equal ones would hide one another.
        lanes = y + np.linspace(-0.24, 0.24, len(values))
        axes.plot(values, lanes, "o", color=colour, markersize=3, alpha=0.6)
        text = f"{mean:.1f} ± {std:.1f}"
    to_the_right = axes.get_yaxis_transform()
    axes.text(1.02, y, text, transform=to_the_right, va="center", size=9)


def _finish_curves(axes: "Axes", by: str, log: bool, far: float) -> None:
    """Names the axes and fits the limits."""
    from matplotlib.ticker import (
        LogLocator,
        MaxNLocator,
        NullFormatter,
        StrMethodFormatter,
    )

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
        axes.xaxis.set_major_locator(MaxNLocator(integer=by == "round"))
        axes.set_xlim(0, far or 1)
