"""Figures of one run: from its record to a `matplotlib.figure.Figure`.

A figure that a run has no data for is None. Those of several runs: `comparison`.
"""

import warnings
from typing import TYPE_CHECKING

import numpy as np

from pfljax.evaluation import fairness
from pfljax.report.comparison import comparison_bars as comparison_bars
from pfljax.report.comparison import comparison_curves as comparison_curves
from pfljax.report.heat_maps import heat_map
from pfljax.report.runs import Run, number, personal_is_server
from pfljax.report.style import (
    BAND,
    GREY,
    GRID,
    PALETTE,
    label_ends,
    new_figure,
    whole_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CLIENTS = 50  # drawn as bubbles; beyond them a heat map
MOST_CLASSES = 30
COLOURS = {"personal": PALETTE[0], "server": PALETTE[1], "training": GREY}


def learning_curves(run: Run) -> "Figure | None":
    """Test accuracy and loss over rounds: mean and 10-90 % band over clients."""
    models = models_of(run)
    if not models:
        return None
    figure, (accuracy, loss) = new_figure(8.4, 3.2, 2)
    _curves(accuracy, run, models, "accuracy", 100)
    accuracy.set_ylabel("test accuracy (%)")
    _curves(loss, run, models, "loss", 1)
    loss.set_ylabel("loss (nats)")
    return figure


def accuracy_histogram(run: Run) -> "Figure | None":
    """Clients by test accuracy at the last round, bins of 5 points."""
    models = models_of(run)
    if not models:
        return None
    figure, (axes,) = new_figure(5.2, 3.2)
    bins = np.linspace(0, 100, fairness.BINS + 1)
    for model, text in models.items():
        colour = COLOURS[model]
        accuracy = run.per_client[f"{model}/test/accuracy"][-1]
        values = 100 * accuracy[np.isfinite(accuracy)]
        # Of two models one is an outline, so that neither hides the other.
        filled = model == "personal" or len(models) == 1
        axes.hist(
            bins[:-1],
            bins,  # type: ignore[arg-type]
            weights=fairness.histogram(accuracy),
            color=colour,
            histtype="stepfilled" if filled else "step",
            alpha=0.55 if filled else 1,
            linewidth=1.6,
        )
        # The mean of no values is a warning, and NaN.
        mean = float(values.mean()) if len(values) else float("nan")
        axes.axvline(mean, color=colour, linewidth=1.2, linestyle="--")
        # A line without points: the legend shows a line for every model.
        axes.plot([], [], color=colour, label=f"{text}, mean {mean:.1f}")
    axes.set(xlim=(0, 100), xlabel="test accuracy (%)", ylabel="clients")
    whole_ticks(axes.yaxis)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def accuracy_by_client(run: Run) -> "Figure | None":
    """Test accuracy of each client at the last round, sorted by the first model's."""
    models = models_of(run)
    if not models:
        return None
    figure, (axes,) = new_figure(5.2, 3.2)
    last = {}
    for model in models:
        last[model] = 100 * run.per_client[f"{model}/test/accuracy"][-1]
    first = next(iter(last.values()))
    order = np.argsort(first, kind="stable")  # NaN goes last
    rank = np.arange(1, len(order) + 1)
    few = len(order) <= MOST_CLIENTS
    if few and len(last) > 1:
        ends = [values[order] for values in last.values()]
        axes.vlines(rank, *ends, color=GREY, alpha=0.5, linewidth=1)
    for depth, (model, text) in enumerate(models.items()):
        axes.plot(
            rank,
            last[model][order],
            "o",
            color=COLOURS[model],
            markersize=(4.5 if few else 2) + 2.5 * depth,
            # Dots of the second one are rings, seen around an equal first one.
            fillstyle="none" if depth else "full",
            label=text,
            zorder=3 - depth,  # the first one lies on top
            rasterized=not few,  # else a PDF of megabytes
        )
    axes.set(xlabel="clients, sorted", ylabel="test accuracy (%)", ylim=(-3, 103))
    axes.grid(axis="y", **GRID)
    whole_ticks(axes.xaxis)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def label_distribution(run: Run) -> "Figure | None":
    """Rows by client and class: bubbles, or a heat map where there are many."""
    counts = np.asarray(run.partition["class_histogram"])  # [C, K]
    if counts.size == 0 or not counts.any():
        return None
    C, K = counts.shape
    width = min(8.4, 2.2 + 0.16 * C)
    height = min(5.2, 1.2 + 0.24 * K)
    figure, (axes,) = new_figure(width, height)
    if MOST_CLIENTS >= C and MOST_CLASSES >= K:
        _bubbles(axes, counts)
    else:
        _heat_map(axes, counts)
    axes.set(xlabel="client", ylabel="class")
    # Discs have a width: half a cell and more is left beside the outer ones.
    axes.set(xlim=(-0.6, C - 0.4), ylim=(-0.6, K - 0.4))
    whole_ticks(axes.xaxis)
    whole_ticks(axes.yaxis)
    return figure


def lambda_curve(run: Run) -> "Figure | None":
    """Accuracy over the mixture's lambda: mean and 10-90 % band over clients."""
    test = run.per_client.get("mixture/test/accuracy")
    if test is None:
        return None
    grid = run.per_client["mixture/lambda"]
    figure, (axes,) = new_figure(5.2, 3.2)
    test_colour = PALETTE[0]
    mean, low, high = over_clients(100 * test.T)
    axes.fill_between(grid, low, high, color=test_colour, **BAND)
    axes.plot(grid, mean, color=test_colour)
    ends = [(mean[-1], "test", test_colour)]
    validation = run.per_client.get("mixture/validation/accuracy")
    if validation is not None:
        mean, _, _ = over_clients(100 * validation.T)
        axes.plot(grid, mean, color=GREY, linestyle="--")
        ends.append((mean[-1], "validation", GREY))
    level = _chosen_level(run)
    if level is not None:
        colour = PALETTE[1]
        axes.axhline(level, color=colour, linestyle=":")
        ends.append((level, "λ chosen on\nvalidation", colour))
    axes.set(xlabel="λ (0 federated, 1 local)", ylabel="accuracy (%)")
    axes.set_xlim(0, 1)
    label_ends(axes, ends)
    return figure


def _chosen_level(run: Run) -> float | None:
    """Mean accuracy in percent with λ chosen on validation; None without it."""
    mixture = run.summary.get("mixture") or {}
    chosen = mixture.get("chosen_on_validation") or {}
    accuracy = chosen.get("accuracy") or {}
    mean = accuracy.get("mean")
    if mean is None:
        return None
    return 100 * mean


def over_clients(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean, 10th, 90th percentile) f[T] over the clients of `values` [T, C].

    Clients without rows are NaN and left out; so are infinite losses.
    """
    values = np.where(np.isfinite(values), values, np.nan)
    with warnings.catch_warnings():
        # A round without any client is NaN, as it should be.
        warnings.simplefilter("ignore", RuntimeWarning)
        mean = np.nanmean(values, axis=1)
        low, high = np.nanpercentile(values, [10, 90], axis=1)
    return mean, low, high


def models_of(run: Run) -> dict[str, str]:
    """Models with a number for each client, by what figures call them."""
    # One curve hides the other where they are the same.
    if personal_is_server(run):
        return {"server": "server = personal"}
    models = {}
    for model in ("personal", "server"):
        if f"{model}/test/accuracy" in run.per_client:
            models[model] = model
    return models


def _curves(
    axes: "Axes", run: Run, models: dict[str, str], metric: str, scale: float
) -> None:
    """Draws a metric of each model over rounds, named at the right end."""
    from matplotlib.ticker import MaxNLocator

    rounds = run.per_client["round"]
    # A line through one point is not seen.
    marker = "o" if len(rounds) == 1 else None
    ends = []
    for model, text in models.items():
        values = run.per_client.get(f"{model}/test/{metric}")
        if values is None:
            continue
        colour = COLOURS[model]
        mean, low, high = over_clients(scale * values)
        axes.fill_between(rounds, low, high, color=colour, **BAND)
        axes.plot(rounds, mean, color=colour, marker=marker)
        ends.append((mean[-1], text, colour))
    if metric == "loss":
        ends.append(_training_curve(axes, run))
    chosen = run.summary.get("chosen_on_validation")
    if chosen:
        axes.axvline(chosen["round"], color=GREY, linewidth=1, linestyle=":")
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0, run.rounds[-1]["round"])
    label_ends(axes, ends)


def _training_curve(axes: "Axes", run: Run) -> tuple[float, str, str]:
    """Draws the training loss behind the others; its (end, name, colour)."""
    rounds = []
    losses = []
    for line in run.rounds:
        rounds.append(line["round"])
        losses.append(number(line.get("train_loss")))
    colour = COLOURS["training"]
    axes.plot(rounds, losses, color=colour, linewidth=1, zorder=1)
    return losses[-1], "training", colour


def _bubbles(axes: "Axes", counts: np.ndarray) -> None:
    """A disc for each client and class, its area in proportion to the rows."""
    client, label = np.nonzero(counts)
    most = counts.max()
    area = counts[client, label] / most
    axes.scatter(
        client,
        label,
        s=110 * area,
        color=PALETTE[0],
        alpha=0.8,
        linewidth=0,
    )
    text = f"area in proportion to rows, at most {most}"
    axes.set_title(text, color=GREY, size=9, loc="left")
    axes.grid(**GRID)
    axes.set_axisbelow(True)


def _heat_map(axes: "Axes", counts: np.ndarray) -> None:
    """Rows by colour, white for none; clients in their order."""
    # NaN is drawn as nothing, so a class without rows differs from one with few.
    shown = np.where(counts == 0, np.nan, counts).T
    most = counts.max()
    bar = heat_map(
        axes,
        shown,
        "rows",
        origin="lower",
        cmap="Blues",
        # From below zero, else a single row is as good as white.
        vmin=-0.4 * most,
        vmax=most,
    )
    bar.ax.set_ylim(0, most)
