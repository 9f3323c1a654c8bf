"""pFedVEM's confidences and their uses (CVPR 2023).

    pfljax prepare fashion_mnist
    python experiments/pfedvem_cvpr23/confidence.py --scale small
    python experiments/pfedvem_cvpr23/confidence.py --scale paper

There are 50 clients of Fashion-MNIST, which differ in one property at a time:

    size   sizes by a lognormal law, all classes
    noise  equal sizes, and a share k / C of random labels for client k
    skew   equal sizes, and 1 to 10 classes

The figure shows tau of each client at the end against this property. The table shows
accuracy and calibration on clean test examples of the client's classes, with heads
weighted by confidence, with heads weighted by examples, and with deterministic methods.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from differing import CLIENTS, DIFFERING
from vem import (
    FASHION,
    RESULTS,
    Result,
    Sweep,
    best_round,
    experiment_of,
    script,
    std_over_seeds,
    sweep,
    with_std,
)

from pfljax.core.components import Component
from pfljax.report.quantities import correlation_text, rank_correlation, scatter
from pfljax.report.style import new_figure, save_figure
from pfljax.runtime.devices import use_compile_cache

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS = ("accuracy", "loss", "brier", "ece")
METHODS = ("FedAvg", "FedPer", "pFedBayes", "pFedVEM by rows", "pFedVEM")
WEIGHED = ("pFedVEM", "pFedVEM by rows")
DRAWN = ("pFedVEM", "pFedBayes")  # predict by draws as well


class Row(NamedTuple):
    """What a method reached; means over clients and seeds, after the last round."""

    differing: str
    method: str
    seeds: int
    rounds: int
    accuracy: float  # percent
    std: float  # of the accuracy, over seeds
    worst10: float  # percent, of the tenth of clients that are served worst
    loss: float
    brier: float
    ece: float


def jobs(differing: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(row, method, options in addition) of what is to run."""
    asked = [("pFedVEM", "pFedVEM", {})]
    if differing != "skew":
        asked = [(method, method, {}) for method in METHODS]
        asked += [(f"{name}, 10 draws", name, {"draws": 10}) for name in DRAWN]
    return asked


def row_of(differing: str, method: str, runs: Sweep) -> Row:
    """The figures of a sweep over seeds."""
    last = {
        metric: np.stack(
            [result.metrics[f"personal/test/{metric}"][-1] for result in runs.results]
        )
        for metric in METRICS
    }
    accuracy = accuracies(runs)
    tenth = -(-last["accuracy"].shape[1] // 10)
    worst = 100 * np.sort(last["accuracy"], 1)[:, :tenth]
    return Row(
        differing=differing,
        method=method,
        seeds=len(accuracy),
        rounds=int(runs.results[0].round[-1]),
        accuracy=float(accuracy.mean()),
        std=float(std_over_seeds(accuracy)),
        worst10=float(worst.mean()),
        loss=float(last["loss"].mean()),
        brier=float(last["brier"].mean()),
        ece=float(last["ece"].mean()),
    )


def accuracies(runs: Sweep) -> np.ndarray:
    """Mean over clients after the last round, percent, f[S]."""
    by_seed = runs.stacked("personal/test/accuracy")[:, -1]
    return 100 * by_seed.mean(1)


def leads(sweeps: Mapping[tuple[str, str], Sweep]) -> str:
    """The gain of weighting heads by confidence over weighting them by examples."""
    lines = []
    for differing in DIFFERING:
        pair = [sweeps.get((differing, label)) for label in WEIGHED]
        if None in pair:
            continue
        # Of a seed both have the same clients, cohorts and minibatches.
        by_confidence, by_rows = (accuracies(runs) for runs in pair if runs)
        lead = by_confidence - by_rows
        lines.append(
            f"Gain of weights by confidence over weights by examples ({differing}): "
            f"{lead.mean():+.2f} ± {std_over_seeds(lead):.2f} points, ahead in "
            f"{np.sum(lead > 0)} of {len(lead)} seeds."
        )
    return "\n\n".join(lines)


class Told(NamedTuple):
    """tau of the clients, and what they differ in; a row a seed."""

    differing: str
    x: np.ndarray  # f[S, C]
    quantities: dict[str, np.ndarray]  # f[S, C] by name


def read_quantities(
    differing: str, seeds: Sequence[int], small: bool, results: Sequence[Result]
) -> Told:
    """The quantities of the clients of pFedVEM at the end of these runs."""
    kind = DIFFERING[differing]
    x = [kind.measure(kind.federation(small, seed)) for seed in seeds]
    names = results[0].quantities
    values = {
        name: np.stack([result.quantities[name][-1] for result in results])
        for name in names
    }
    return Told(differing, np.stack(x), values)


def figure(told: Sequence[Told]) -> "Figure":
    """tau of each client against what it differs in, a panel each, all seeds."""
    drawn, panels = new_figure(0.8 + 2.8 * len(told), 3.2, len(told))
    for axes, each in zip(panels, told, strict=True):
        tau = each.quantities["tau"]
        scatter(axes, each.x.ravel(), tau.ravel())
        axes.set_title(each.differing + correlation_text(each.x.ravel(), tau.ravel()))
        axes.set_xlabel(DIFFERING[each.differing].axis)
    panels[0].set_ylabel("confidence tau")
    return drawn


def markdown(rows: Sequence[Row], told: Sequence[Told]) -> str:
    """A table of the methods, and one of rank correlations."""
    lines = [
        "| clients differ in | method | accuracy | worst 10 % | NLL | Brier | ECE |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        texts = (
            row.differing,
            row.method,
            with_std(row.accuracy, row.std),
            f"{row.worst10:.2f}",
            f"{row.loss:.3f}",
            f"{row.brier:.3f}",
            f"{row.ece:.3f}",
        )
        lines.append(f"| {' | '.join(texts)} |")
    names = ("tau", "uncertainty", "deviation")
    lines += [
        "\nSpearman's rank correlation with the quantity in which the clients differ, "
        "mean over seeds:\n",
        f"| clients differ in | {' | '.join(names)} |",
        "|---|---|---|---|",
    ]
    for each in told:
        texts = [each.differing]
        for name in names:
            pairs = zip(each.x, each.quantities[name], strict=True)
            texts.append(f"{np.mean([rank_correlation(*pair) for pair in pairs]):+.2f}")
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def main(
    scale: Literal["small", "paper"] = "small",
    seeds: script.Seeds = (0, 1, 2),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: script.Results = None,
) -> list[Row]:
    """pFedVEM's confidences by size, noise and skew, and what they are good for."""
    use_compile_cache()
    small = scale == "small"
    folder = Path(out or f"runs/pfedvem_confidence-{scale}")
    sweeps: dict[tuple[str, str], Sweep] = {}
    told: list[Told] = []
    for differing, kind in DIFFERING.items():
        for label, method, more in jobs(differing):
            print(f"{differing}, {label}", file=sys.stderr, flush=True)
            base = experiment_of(FASHION, method, CLIENTS, small)
            named = Component(base.algorithm.name, base.algorithm.options | more)
            experiment = base.replace(algorithm=named, label=label)
            if rounds:
                experiment = experiment.replace(rounds=rounds)
            runs = sweep(
                experiment,
                {"seed": seeds},
                out=folder / differing / label,
                federation=partial(kind.federation, small),
            )
            sweeps[differing, label] = runs
            if label == "pFedVEM":
                told.append(read_quantities(differing, seeds, small, runs.results))
    rows = [row_of(*which, runs) for which, runs in sweeps.items()]
    text = f"{markdown(rows, told)}\n\n{leads(sweeps)}"
    print(text)
    place = Path(results or RESULTS) / f"confidence_{scale}"
    best_round.write(place, rows, text)
    save_figure(figure(told), place)
    return rows


if __name__ == "__main__":
    script.run(main)
