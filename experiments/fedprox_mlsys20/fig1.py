"""FedProx, Figures 1 and 7: stragglers, dropped or kept (MLSys 2020).

    pfljax prepare mnist
    python experiments/fedprox_mlsys20/fig1.py --scale paper
    python experiments/fedprox_mlsys20/fig1.py --scale small --datasets shakespeare

The figure shows the training loss of FedAvg, of FedProx with mu = 0 and with the best
mu, at 0, 50 and 90 % stragglers. The tables show the test accuracy (Figure 7), and
check the claim of "22 % on average" at 90 %. They give the accuracy at the end, and
where the paper takes it: when a run has converged, when it begins to diverge, or at its
end.

The best mu is the paper's. On all sets except Shakespeare, the script also runs the mu
of the paper's grid that has the lowest training loss at the end of a run of the first
seed with 90 % stragglers.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from cases import MUS, SHARES, three_methods
from curves import Row, best_of, losses_by_mu, markdown, run_all
from drawing import HERE, Place, grid, script, write
from problems import TITLES, Scale

Dataset = Literal["synthetic_1_1", "mnist", "femnist", "shakespeare"]
DATASETS: tuple[Dataset, ...] = ("synthetic_1_1", "mnist")


def gains(rows: Sequence[Row]) -> str:
    """Points over FedAvg at the end, and by the paper's rule: two tables."""
    ends = {"at the end": "accuracy", "by the paper's rule": "stopped"}
    return "\n".join(_gains(rows, when, name) for when, name in ends.items())


def _gains(rows: Sequence[Row], when: str, name: str) -> str:
    """Points of accuracy by which FedProx leads FedAvg, a line a share."""
    titles = " | ".join(_datasets(rows))
    lines = ["", f"| points over FedAvg, {when} | {titles} | mean |"]
    lines.append("|---" * (2 + len(_datasets(rows))) + "|")
    accuracy = {(r.dataset, r.stragglers, r.method): getattr(r, name) for r in rows}
    # With stragglers all methods are there, and mu = 0 before the others.
    latest = [row for row in rows if row.stragglers == max(SHARES)]
    methods = dict.fromkeys(row.method for row in latest if row.method != "FedAvg")
    for share in SHARES:
        for method in methods:
            ahead = [
                accuracy[dataset, share, method] - accuracy[dataset, share, "FedAvg"]
                if (dataset, share, method) in accuracy
                else float("nan")
                for dataset in _datasets(rows)
            ]
            if np.isnan(ahead).all():
                continue
            cells = [_points(points) for points in (*ahead, float(np.mean(ahead)))]
            lines.append(f"| {100 * share:g} %, {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _points(points: float) -> str:
    """A difference; a dash where a method is not on all data."""
    return "–" if np.isnan(points) else f"{points:+.1f}"


def searched(losses: Mapping[str, Mapping[float, float]]) -> str:
    """What the search for mu found, a line a data set."""
    if not losses:
        return ""
    titles = " | ".join(f"mu = {mu:g}" for mu in MUS)
    lines = ["", f"| training loss, first seed, 90 % late | {titles} | best |"]
    lines.append("|---" * (2 + len(MUS)) + "|")
    for dataset, by_mu in losses.items():
        cells = [f"{by_mu[mu]:.3f}" for mu in MUS]
        best = f"{best_of(by_mu):g}"
        lines.append(f"| {TITLES[dataset]} | {' | '.join(cells)} | {best} |")
    return "\n".join(lines)


def _datasets(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.dataset for row in rows))


def main(
    scale: Scale = "small",
    seeds: script.Seeds = (0, 1),
    datasets: tuple[Dataset, ...] = DATASETS,
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: Place = str(HERE),
) -> list[Row]:
    """Stragglers, dropped or kept."""
    losses = {
        dataset: losses_by_mu(dataset, scale, seeds[0], rounds, out)
        for dataset in datasets
        if dataset != "shakespeare"
    }
    best = {dataset: best_of(by_mu) for dataset, by_mu in losses.items()}
    cases = three_methods(datasets, SHARES, best)
    curves, rows = run_all(cases, scale, seeds, rounds, out)
    text = f"{markdown('Stragglers', rows)}\n{searched(losses)}\n{gains(rows)}"
    drawn = grid(curves, "loss", "training loss", SHARES)
    of_default = tuple(datasets) == DATASETS
    name = scale if of_default else "_".join((*datasets, scale))
    write(f"fig1_{name}", rows, text, drawn, results)
    return rows


if __name__ == "__main__":
    script.run(main)
