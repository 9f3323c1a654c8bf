"""FedProx and its rivals under stragglers, whose partial work is kept.

    python experiments/fedprox_mlsys20/rivals.py --scale paper --seeds 0 1 2

This is not in the paper. FedNova (Wang et al., NeurIPS 2020,
https://arxiv.org/abs/2007.07481) and FedDyn (Acar et al., ICLR 2021,
https://arxiv.org/abs/2111.04263) run on the problem of Figure 1, Synthetic (1, 1), with
the same stragglers, cohorts and minibatches. FedAvg drops the stragglers. FedDyn's
alpha is 0.01 and was not tuned.
"""

from cases import BEST_MU, SHARES, Case, fedavg, fedprox
from curves import Row, markdown, run_all
from drawing import HERE, Place, grid, script, write
from problems import Scale

DATASET = "synthetic_1_1"


def cases() -> list[Case]:
    """FedAvg, and who keeps partial work, at each share of stragglers."""
    every = []
    for share in SHARES:
        every += [
            fedavg(DATASET, share),
            fedprox(DATASET, BEST_MU, share),
            Case(DATASET, "FedNova", "fednova", stragglers=share),
            Case(DATASET, "FedDyn", "feddyn", (("alpha", 0.01),), stragglers=share),
        ]
    return every


def main(
    scale: Scale = "small",
    seeds: script.Seeds = (0, 1),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: Place = str(HERE),
) -> list[Row]:
    """FedProx beside FedNova and FedDyn."""
    curves, rows = run_all(cases(), scale, seeds, rounds, out)
    drawn = grid(curves, "loss", "training loss", SHARES)
    write(f"rivals_{scale}", rows, markdown("Rivals", rows), drawn, results)
    return rows


if __name__ == "__main__":
    script.run(main)
