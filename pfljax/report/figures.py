"""Figures of one run: from its record to a `matplotlib.figure.Figure`.

A figure that a run has no data for is None. Those of several runs: `comparison`.
"""

import warnings
from typing import TYPE_CHECKING

import numpy as np

from pfljax.report.comparison import comparison_bars as comparison_bars
from pfljax.report.comparison import comparison_curves as comparison_curves
from pfljax.report.runs import Run, find_records, number, personal_is_server
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
CAPTIONS = {
    "learning_curves": "Test accuracy and loss along the run: mean over all clients; "
    "the band spans the 10th to the 90th percentile of clients. The dotted line marks "
    "the round chosen on validation data; training loss is the mean of each round's "
    "participants.",
    "accuracy_histogram": "Test accuracy of each client at the last round; lines mark "
    "the means over clients.",
    "accuracy_by_client": "The same accuracies client by client, from the worst to the "
    "best off; a line joins the two models of a client where clients are few.",
    "label_distribution": "Rows of each class that each client holds.",
    "lambda_curve": "Accuracy of the mixture (1 - λ) federated + λ local at the last "
    "round: mean over clients; the band spans the 10th to the 90th percentile of "
    "clients on test rows. The dotted line is the test mean with λ chosen by each "
    "client on its validation rows.",
}
LANDSCAPES = {
    "line": "Test accuracy along the straight line between the two models of each "
    "client: mean over clients; the band spans the 10th to the 90th percentile of "
    "clients. All metrics of every client: landscape/line.npz.",
    "other": "Test accuracy along the straight line from each client's personal model "
    "here (0) to its personal model of another run (1): mean over clients; the band "
    "spans the 10th to the 90th percentile of clients.",
    "pairs": "Between the personal models of all pairs of clients: the barrier of the "
    "loss on the test rows of both (its excess over the straight line between the "
    "ends), and the cosine of the angle between the parameters.",
    "plane": "Loss of all test rows around the server's model, along two random "
    "directions normalised filter by filter.",
    "plane_surface": "The same plane as a surface.",
    "hessian": "Loss of all test rows around the server's model, along the two leading "
    "eigenvectors of the training loss's Hessian, each a tenth as long as the model.",
    "curvature": "How sharp each client's personal model is on its own training rows: "
    "the greatest eigenvalue of the Hessian, its trace, and how much the loss rises "
    "within a ball of radius .05 (SAM), each from the least to the greatest.",
    "hessian_surface": "The same plane as a surface.",
    "hessian_spectrum": "Density of the eigenvalues of the training loss's Hessian at "
    "the server's model; short lines: the two greatest.",
    "training": "Barriers on the straight line from the server's model of each kept "
    "round to its last one, on all test rows.",
    "training_plane": "The server's way through the plane of its two principal "
    "directions: loss of all test rows; marks are rounds.",
}


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
    bins = np.linspace(0, 100, 21)
    for model, text in models.items():
        values = 100 * run.per_client[f"{model}/test/accuracy"][-1]
        values = values[np.isfinite(values)]
        filled = model == "personal" or len(models) == 1
        axes.hist(
            values,
            bins,  # type: ignore[arg-type]
            color=COLOURS[model],
            histtype="stepfilled" if filled else "step",
            alpha=0.55 if filled else 1,
            linewidth=1.6,
        )
        mean = float(values.mean()) if len(values) else float("nan")
        axes.axvline(mean, color=COLOURS[model], linewidth=1.2, linestyle="--")
        axes.plot([], [], color=COLOURS[model], label=f"{text}, mean {mean:.1f}")
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
    last = {m: 100 * run.per_client[f"{m}/test/accuracy"][-1] for m in models}
    order = np.argsort(next(iter(last.values())), kind="stable")  # NaN goes last
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
            markersize=4.5 if few else 2,
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
    few = MOST_CLIENTS >= C and MOST_CLASSES >= K
    figure, (axes,) = new_figure(min(8.4, 2.2 + 0.16 * C), min(5.2, 1.2 + 0.24 * K))
    (_bubbles if few else _heat_map)(axes, counts)
    axes.set(
        xlabel="client", ylabel="class", xlim=(-0.6, C - 0.4), ylim=(-0.6, K - 0.4)
    )
    for axis in (axes.xaxis, axes.yaxis):
        whole_ticks(axis)
    return figure


def lambda_curve(run: Run) -> "Figure | None":
    """Accuracy over the mixture's lambda: mean and 10-90 % band over clients."""
    test = run.per_client.get("mixture/test/accuracy")
    if test is None:
        return None
    grid = run.per_client["mixture/lambda"]
    figure, (axes,) = new_figure(5.2, 3.2)
    mean, low, high = over_clients(100 * test.T)
    axes.fill_between(grid, low, high, color=PALETTE[0], **BAND)
    axes.plot(grid, mean, color=PALETTE[0])
    ends = [(mean[-1], "test", PALETTE[0])]
    validation = run.per_client.get("mixture/validation/accuracy")
    if validation is not None:
        mean = over_clients(100 * validation.T)[0]
        axes.plot(grid, mean, color=GREY, linestyle="--")
        ends.append((mean[-1], "validation", GREY))
    chosen = (run.summary.get("mixture") or {}).get("chosen_on_validation") or {}
    if (chosen.get("accuracy") or {}).get("mean") is not None:
        level = 100 * chosen["accuracy"]["mean"]
        axes.axhline(level, color=PALETTE[1], linestyle=":")
        ends.append((level, "λ chosen on\nvalidation", PALETTE[1]))
    axes.set(xlabel="λ (0 federated, 1 local)", ylabel="accuracy (%)", xlim=(0, 1))
    label_ends(axes, ends)
    return figure


def caption(name: str, run: Run) -> str:
    """What a figure shows, and at which moment its models were judged."""
    if name not in ("learning_curves", "accuracy_histogram"):
        return CAPTIONS[name]
    evaluations = run.summary["last"]["evaluations"]
    moments = {}  # the first record of a model is the one of per_client.npz
    for record in find_records(evaluations, split="test", clients="all"):
        tuned = f" + {record['finetune']} local steps" if record["finetune"] else ""
        judged = f"{record['model']}{tuned}, {record['when']}"
        moments.setdefault(record["model"], judged)
    return f"{CAPTIONS[name]} Judged: {'; '.join(moments.values())}."


def landscape_caption(kind: str) -> str:
    """What a figure of `pfljax landscape` shows."""
    return LANDSCAPES.get(
        kind, f"The {kind} of the run, as `pfljax landscape` drew it."
    )


def over_clients(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean, 10th, 90th percentile) f[T] over the clients of `values` [T, C].

    Clients without rows are NaN and left out; so are infinite losses.
    """
    values = np.where(np.isfinite(values), values, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a round without any client
        low, high = np.nanpercentile(values, [10, 90], axis=1)
        return np.nanmean(values, axis=1), low, high


def models_of(run: Run) -> dict[str, str]:
    """Models with a number for each client, by what figures call them."""
    if personal_is_server(run):
        return {"server": "server = personal"}
    models = ("personal", "server")
    return {m: m for m in models if f"{m}/test/accuracy" in run.per_client}


def _curves(axes: "Axes", run: Run, models: dict[str, str], metric: str, scale: float):
    """Draws a metric of each model over rounds, named at the right end."""
    rounds = run.per_client["round"]
    ends = []
    for model, text in models.items():
        values = run.per_client.get(f"{model}/test/{metric}")
        if values is None:
            continue
        mean, low, high = over_clients(scale * values)
        axes.fill_between(rounds, low, high, color=COLOURS[model], **BAND)
        marker = "o" if len(rounds) == 1 else None
        axes.plot(rounds, mean, color=COLOURS[model], marker=marker)
        ends.append((mean[-1], text, COLOURS[model]))
    if metric == "loss":
        every_round = [line["round"] for line in run.rounds]
        training = [number(line.get("train_loss")) for line in run.rounds]
        axes.plot(every_round, training, color=GREY, linewidth=1, zorder=1)
        ends.append((training[-1], "training", GREY))
    chosen = run.summary.get("chosen_on_validation")
    if chosen:
        axes.axvline(chosen["round"], color=GREY, linewidth=1, linestyle=":")
    axes.set_xlabel("round")
    axes.set_xlim(0, run.rounds[-1]["round"])
    label_ends(axes, ends)


def _bubbles(axes: "Axes", counts: np.ndarray) -> None:
    """A disc for each client and class, its area in proportion to the rows."""
    client, label = np.nonzero(counts)
    area = counts[client, label] / counts.max()
    axes.scatter(client, label, s=110 * area, color=PALETTE[0], alpha=0.8, linewidth=0)
    text = f"area in proportion to rows, at most {counts.max()}"
    axes.set_title(text, color=GREY, size=9, loc="left")
    axes.grid(**GRID)
    axes.set_axisbelow(True)


def _heat_map(axes: "Axes", counts: np.ndarray) -> None:
    """Rows by colour, white for none; clients in their order."""
    # NaN is drawn as nothing, so a class without rows differs from one with few.
    shown = np.where(counts == 0, np.nan, counts).T
    most = counts.max()
    image = axes.imshow(
        shown, aspect="auto", origin="lower", cmap="Blues", vmin=-0.4 * most, vmax=most
    )
    figure = axes.get_figure()
    assert figure is not None
    bar = figure.colorbar(image, ax=axes, label="rows", pad=0.01)
    bar.ax.spines["outline"].set_visible(False)
    bar.ax.set_ylim(0, most)  # the scale starts below zero to keep one row visible
