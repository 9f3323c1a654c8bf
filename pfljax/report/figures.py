"""Figures of one run. A figure that a run has no data for is None.

Figures of several runs are in `comparison_figures`.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from pfljax.report.comparison_figures import comparison_curves as comparison_curves
from pfljax.report.comparison_figures import differences as differences
from pfljax.report.heat_maps import heat_map
from pfljax.report.lead import Lead, find_lead, make_lead
from pfljax.report.quantities import quantities_by_size
from pfljax.report.runs import number, personal_is_server
from pfljax.report.style import (
    BAND,
    GREY,
    GRID,
    PALETTE,
    Axes,
    Figure,
    add_legend,
    integer_ticks,
    name_ticks,
    new_figure,
    plot_line,
)
from pfljax.runs.result import Result

MOST_CLIENTS = 50  # with large dots
MOST_LANES = 40  # of the timeline
MOST_ROUNDS = 12
STRATA = {"classes": "class", "multilabel": "first label"}  # by kind of task
COLOURS = {"personal": PALETTE[0], "server": PALETTE[1]}


def learning_curves(run: Result) -> Figure:
    """The test metric and loss by round: the mean and a 10-90 % band over clients."""
    lead = find_lead([run])
    figure, (metric, loss) = new_figure(8.4, 3.2, 2)
    rounds = run.clients["round"]
    _draw_models(metric, run, rounds, lead)
    _draw_models(loss, run, rounds, make_lead("loss"))
    training = [number(line.get("train_loss")) for line in run.metrics]
    style: dict[str, Any] = {"color": GREY, "linewidth": 1, "zorder": 1}
    every_round = [line["round"] for line in run.metrics]
    loss.plot(every_round, training, label="training", **style)
    chosen = run.summary.get("chosen_on_validation")
    for axes in (metric, loss):
        if chosen:
            axes.axvline(chosen["round"], color=GREY, linewidth=1, linestyle=":")
        axes.set(xlabel="round", xlim=(0, run.rounds))
        integer_ticks(axes.xaxis)
        add_legend(axes)
    metric.set_ylabel(f"test {lead.label}")
    loss.set_ylabel("loss (nats)" if "entropy" in run.personal.test.figures else "loss")
    return figure


def accuracy_by_seconds(run: Result) -> Figure | None:
    """The test metric by virtual seconds: the mean and a 10-90 % band over clients."""
    lead = find_lead([run])
    if "clock" not in run.metrics[-1]:
        return None
    figure, (axes,) = new_figure(5.2, 3.2)
    seconds = [line["clock"] for line in run.metrics if line.get("evaluations")]
    _draw_models(axes, run, seconds, lead)
    axes.set(xlabel="virtual seconds", ylabel=f"test {lead.label}")
    axes.set_xlim(0, run.metrics[-1]["clock"] or 1)
    axes.grid(axis="y", **GRID)
    add_legend(axes)
    return figure


def _draw_models(axes: Axes, run: Result, x: Any, shown: Lead) -> None:
    """Draws a metric of each model over x [T]."""
    for model, text in list_models(run).items():
        values = run.clients.get(f"{model}/test/{shown.name}")
        if values is not None:
            values = shown.scale * values
            draw_clients(axes, x, values, color=COLOURS[model], label=text)


def accuracy_by_client(run: Result) -> Figure:
    """The test metric of each client at the last round, sorted by the first model's."""
    lead = find_lead([run])
    models = list_models(run)
    figure, (axes,) = new_figure(5.2, 3.2)
    name = f"test/{lead.name}"
    last = {m: lead.scale * run.clients[f"{m}/{name}"][-1] for m in models}
    # From the worst; NaN goes last.
    order = np.argsort(lead.sign * next(iter(last.values())), kind="stable")
    rank = np.arange(1, len(order) + 1)
    size = 4.5 if len(order) <= MOST_CLIENTS else 2
    # The dots of a second model are rings, seen around equal ones of the first.
    dots: dict[str, Any] = {"linestyle": "", "rasterized": len(order) > MOST_CLIENTS}
    for (model, text), fill in zip(models.items(), ("full", "none"), strict=False):
        look = {"color": COLOURS[model], "fillstyle": fill, "markersize": size}
        axes.plot(rank, last[model][order], "o", label=text, **look, **dots)
        size += 2.5
    axes.set(xlabel="clients, sorted", ylabel=f"test {lead.label}")
    if lead.is_share:
        axes.set_ylim(-3, 103)
    axes.grid(axis="y", **GRID)
    integer_ticks(axes.xaxis)
    add_legend(axes)
    return figure


def label_distribution(run: Result) -> Figure | None:
    """Examples by client and class, by colour: white for none."""
    has_classes = run.partition.get("kind", "classes") == "classes"
    return draw_partition(run.partition) if has_classes else None


def target_distribution(run: Result) -> Figure | None:
    """Examples by client and part of the target's range, where it is no class."""
    has_classes = run.partition.get("kind", "classes") == "classes"
    return None if has_classes else draw_partition(run.partition)


def draw_partition(partition: Mapping[str, Any]) -> Figure | None:
    """Examples by client and class of a manifest; None if it counts none."""
    counts = np.asarray(partition["class_histogram"])  # [C, K]
    kind = partition.get("kind", "classes")
    if counts.size == 0 or not counts.any() or kind == "tokens":
        return None
    C, K = counts.shape
    figure, (axes,) = new_figure(min(8.4, 2.8 + 0.16 * C), min(5.2, 1.2 + 0.24 * K))
    shown = np.where(counts == 0, np.nan, counts).T
    most = counts.max()
    # From below zero: a single example is not as good as white.
    colours: dict[str, Any] = {"cmap": "Blues", "vmin": -0.4 * most, "vmax": most}
    bar = heat_map(axes, shown, "examples", origin="lower", **colours)
    bar.ax.set_ylim(0, most)
    axes.set(xlabel="client", ylabel=STRATA.get(kind, "decile of the target"))
    for axis, kind, rotation in (
        (axes.xaxis, "client_names", 90),
        (axes.yaxis, "class_names", 0),
    ):
        if kind in partition:
            name_ticks(axis, partition[kind], rotation=rotation)
        else:
            integer_ticks(axis)
    return figure


def lambda_curve(run: Result) -> Figure | None:
    """The metric along a mixture's lambda: the mean and a 10-90 % band over clients."""
    lead = find_lead([run])
    test = run.clients.get(f"mixture/test/{lead.name}")
    if test is None:
        return None
    grid = run.clients["mixture/lambda"]
    figure, (axes,) = new_figure(5.2, 3.2)
    draw_clients(axes, grid, lead.scale * test.T, color=PALETTE[0], label="test")
    validation = run.clients.get(f"mixture/validation/{lead.name}")
    if validation is not None:
        mean = np.nanmean(lead.scale * validation.T, axis=1)
        axes.plot(grid, mean, color=GREY, linestyle="--", label="validation")
        chosen = run.summary["mixture"]["chosen_on_validation"][lead.name]
        level = lead.scale * number(chosen["mean"])
        label = "λ chosen on\nvalidation"
        axes.axhline(level, color=PALETTE[1], linestyle=":", label=label)
    axes.set(xlabel="λ (0 federated, 1 local)", ylabel=lead.label, xlim=(0, 1))
    add_legend(axes)
    return figure


def timeline(run: Result) -> Figure | None:
    """The activity of clients in the first rounds over virtual seconds.

    Each client has a lane, and each turn a bar: from its download to its upload.
    """
    lines = [line for line in run.metrics if line.get("turns")][:MOST_ROUNDS]
    if not lines:
        return None
    turns = [turn for line in lines for turn in line["turns"]]
    clients = sorted({client for client, *_ in turns})[:MOST_LANES]
    lane = {client: i for i, client in enumerate(clients)}
    figure, (axes,) = new_figure(8.4, min(6.5, 1.4 + 0.17 * len(clients)))
    for client, start, end, reported in turns:
        if client in lane:
            # White edges separate the turns of a client that follow at once.
            axes.barh(
                lane[client],
                end - start,
                height=0.6,
                left=start,
                color=PALETTE[0] if reported else PALETTE[1],
                edgecolor="white",
                linewidth=0.8,
            )
    for line in lines:
        axes.axvline(line["clock"], color=GREY, linewidth=0.8, zorder=0)
    names = run.partition.get("client_names", range(clients[-1] + 1))
    name_ticks(axes.yaxis, [str(names[client]) for client in clients])
    axes.set(ylim=(len(clients) - 0.4, -0.6), xlim=(0, lines[-1]["clock"]))
    axes.set(xlabel="virtual seconds", ylabel="client")
    return figure


def draw_clients(axes: Axes, x: Any, values: np.ndarray, **style: Any) -> None:
    """Draws the mean over the clients of `values` [T, C] and a 10-90 % band.

    NaN of clients without examples is left out, and so are infinite losses.
    """
    values = np.where(np.isfinite(values), values, np.nan)
    with warnings.catch_warnings():
        # Without any client it is NaN.
        warnings.simplefilter("ignore", RuntimeWarning)
        mean = np.nanmean(values, axis=1)
        low, high = np.nanpercentile(values, [10, 90], axis=1)
    # A single client has no spread.
    if values.shape[1] > 1:
        axes.fill_between(x, low, high, color=style["color"], **BAND)
    plot_line(axes, x, mean, **style)


def list_models(run: Result) -> dict[str, str]:
    """The models with a number for each client, and what figures call them."""
    metric = find_lead([run]).name
    if personal_is_server(run, metric):
        return {"server": "server = personal"}
    models = ("personal", "server")
    return {m: m for m in models if f"{m}/test/{metric}" in run.clients}


OF_RUN = (
    learning_curves,
    accuracy_by_client,
    label_distribution,
    target_distribution,
    quantities_by_size,
    lambda_curve,
    accuracy_by_seconds,
    timeline,
)
