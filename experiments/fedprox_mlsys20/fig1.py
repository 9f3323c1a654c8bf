"""FedProx, Figures 1 and 7: stragglers, dropped or kept (MLSys 2020).

    pfljax prepare mnist
    python experiments/fedprox_mlsys20/fig1.py --scale paper

The training loss of FedAvg, FedProx with mu = 0, and with the best mu, at 0, 50 and
90 % stragglers. The tables beside it are of test accuracy, Figure 7, and of the claim
of "22 % on average" at 90 %: at the end, and where the paper takes a run's accuracy:
where it has converged, where it begins to diverge, or at its end.
"""

from collections.abc import Sequence
from typing import Literal

from prox import (
    HERE,
    SHARES,
    Place,
    Row,
    Scale,
    grid,
    markdown,
    run_all,
    script,
    three_methods,
    write,
)

DATASETS = ("synthetic_1_1", "mnist")


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
    for share in SHARES:
        for method in ("FedProx, mu = 0", "FedProx, mu = 1"):
            ahead = [
                accuracy[dataset, share, method] - accuracy[dataset, share, "FedAvg"]
                for dataset in _datasets(rows)
                if (dataset, share, method) in accuracy
            ]
            if not ahead:
                continue
            cells = [f"{points:+.1f}" for points in (*ahead, sum(ahead) / len(ahead))]
            lines.append(f"| {100 * share:g} %, {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _datasets(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.dataset for row in rows))


def main(
    scale: Scale = "small",
    seeds: script.Seeds = (0, 1),
    datasets: tuple[Literal["synthetic_1_1", "mnist"], ...] = DATASETS,
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: Place = str(HERE),
) -> list[Row]:
    """Stragglers, dropped or kept."""
    cases = three_methods(datasets, SHARES)
    curves, rows = run_all(cases, scale, seeds, rounds, out)
    text = markdown("Stragglers", rows) + "\n" + gains(rows)
    drawn = grid(curves, "loss", "training loss", SHARES)
    write(f"fig1_{scale}", rows, text, drawn, results)
    return rows


if __name__ == "__main__":
    script.run(main)
