"""Figures of several runs: curves by rounds or bytes, and bars of the final numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax.report.clients import judged_clients
from pfljax.report.runs import (
    Group,
    Run,
    accuracy_curve,
    group_runs,
    judged_records,
    number,
)
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
    """Mean accuracy over rounds or bytes sent, mean and ± std over seeds.

    Args:
        runs: seeds of a method are found by `group_runs`.
        by: "round" or "bytes".
        log: a logarithmic axis of bytes.
    """
    if by not in ("round", "bytes"):
        raise ValueError(f"by is {by!r}; expected 'round' or 'bytes'")
    groups = group_runs(runs)
    figure, (axes,) = new_figure(6.4, 3.8)
    styles = group_styles(groups)
    curves = [seed_curves(group, by) for group in groups]
    far = max((x[-1] for x, _ in curves if len(x)), default=0)
    ends = []
    for group, style, (x, accuracy) in zip(groups, styles, curves, strict=True):
        if len(x):
            last = _curve(axes, x, accuracy, style, far)
            ends.append((last, wrapped(group.label), style["color"]))
    _finish_curves(axes, by, log, far)
    label_ends(axes, ends)
    return figure


def comparison_clients(runs: Sequence[Run]) -> "Figure":
    """Each method's clients from best to worst: quantiles, their mean over seeds."""
    groups = group_runs(runs)
    figure, (axes,) = new_figure(6.4, 3.8)
    share = np.linspace(0, 100, 101)
    ends = []
    for group, style in zip(groups, group_styles(groups), strict=True):
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
        if accuracy is not None and np.isfinite(accuracy).any():
            finite = 100 * accuracy[np.isfinite(accuracy)]
            quantiles.append(np.percentile(finite, percent))
    return quantiles


def comparison_bars(runs: Sequence[Run]) -> "Figure":
    """Final accuracy and its spread over clients, a bar a method, best on top."""
    groups = group_runs(runs)
    styles = group_styles(groups)
    finals = [_finals(group) for group in groups]  # (accuracy [n], std [n]) a group
    means = [over_seeds(accuracy)[0] for accuracy, _ in finals]
    # From the bottom up: a method without a number lies lowest.
    order = np.argsort(np.nan_to_num(means, nan=-1), kind="stable")
    labels = [wrapped(groups[i].label) for i in order]
    lines = max(label.count("\n") + 1 for label in labels)
    height = 0.9 + max(0.42, 0.2 * lines) * len(groups)
    figure, (left, right) = new_figure(
        8.0, height, 2, sharey=True, width_ratios=[2.2, 1]
    )
    for y, i in enumerate(order):
        for axes, values in zip((left, right), finals[i], strict=True):
            _bar(axes, y, values, styles[i]["color"])
    left.set_yticks(range(len(groups)), labels, parse_math=False)
    left.set(xlabel="test accuracy (%), mean over clients", xlim=(0, 115))
    left.set_xticks(range(0, 101, 20))
    left.spines["bottom"].set_bounds(0, 100)
    right.set_xlabel("std over clients (points)")
    right.set_xlim(0, right.get_xlim()[1] * 1.25)
    for axes in (left, right):
        axes.tick_params(axis="y", length=0)
    return figure


def group_styles(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """A colour for each method, by its place in the sorted labels; local is grey."""
    labels = sorted(group.label for group in groups)
    baselines = [g.label for g in groups if g.runs[0].config["algorithm"] == "local"]
    plain = baselines[0] if baselines else None
    styles = dict(zip(labels, line_styles(labels, plain), strict=True))
    return [styles[group.label] for group in groups]


def seed_curves(group: Group, by: str = "round") -> tuple[np.ndarray, np.ndarray]:
    """(x f[T], accuracy in percent f[n, T]) at the rounds that all n seeds evaluated.

    x is the round, or the mean over seeds of the MB sent so far, up and down.
    """
    curves = [accuracy_curve(run) for run in group.runs]
    rounds = curves[0][0]
    for other, _ in curves[1:]:
        rounds = np.intersect1d(rounds, other)
    accuracy = np.stack([100 * a[np.isin(r, rounds)] for r, a in curves])
    if by == "round":
        return rounds.astype(float), accuracy
    sent = [_megabytes(run, rounds) for run in group.runs]
    return np.mean(sent, axis=0), accuracy


def _megabytes(run: Run, rounds: np.ndarray) -> list[float]:
    """MB up and down of all clients up to each of these rounds."""
    sent = {}
    for line in run.rounds:
        total = number(line.get("bytes_up")) + number(line.get("bytes_down"))
        sent[line["round"]] = total / 1e6
    return [sent.get(int(r), float("nan")) for r in rounds]


def _finals(group: Group) -> tuple[np.ndarray, np.ndarray]:
    """(mean over clients, std over clients) in percent, f[n] over seeds."""
    by_seed = []
    for run in group.runs:
        records = judged_records(run.summary["last"]["evaluations"])
        accuracy = (records[0]["metrics"].get("accuracy") or {}) if records else {}
        by_seed.append([number(accuracy.get("mean")), number(accuracy.get("std"))])
    mean, std = 100 * np.array(by_seed, float).T
    return mean, std


def _curve(
    axes: "Axes", x: np.ndarray, accuracy: np.ndarray, style: dict[str, Any], far: float
) -> float:
    """Draws one method: x [T], accuracy [n, T]; returns the mean at its end.

    A curve that ends before `far` goes on as a thin dotted line to its label.
    """
    mean = accuracy.mean(0)
    std = std_over_seeds(accuracy) if len(accuracy) > 1 else np.zeros_like(mean)
    # A method that sends nothing has no length on the axis of bytes: a level line.
    if far > 0 and x[-1] == 0:
        axes.plot([0, far], [mean[-1]] * 2, **style)
        return float(mean[-1])
    axes.fill_between(x, mean - std, mean + std, color=style["color"], **BAND)
    axes.plot(x, mean, marker="o" if len(x) == 1 else None, **style)
    if x[-1] < far:
        rest = {"color": style["color"], "linestyle": ":", "linewidth": 0.8}
        axes.plot([x[-1], far], [mean[-1]] * 2, **rest)
    return float(mean[-1])


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
        lanes = y + np.linspace(-0.18, 0.18, len(values))
        axes.plot(values, lanes, "o", color=colour, markersize=3.5)
        text = f"{mean:.1f} ± {std:.1f}"
        right = max(mean + std, np.nanmax(values))
    axes.annotate(
        text, (right, y), (5, 0), textcoords="offset points", va="center", size=9
    )


def _finish_curves(axes: "Axes", by: str, log: bool, far: float) -> None:
    """Names the axes and fits the limits."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_ylabel("test accuracy (%), mean over clients")
    axes.grid(axis="y", **GRID)
    sent = "sent up and down by all clients (MB)"
    axes.set_xlabel(sent if by == "bytes" else "round")
    if by == "bytes" and log and far > 0:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(right=far)
    else:
        axes.set_xlim(0, far or 1)
