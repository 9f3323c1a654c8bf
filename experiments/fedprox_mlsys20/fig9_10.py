"""FedProx, Figures 9 and 10: one local epoch, of which stragglers do some steps.

    pfljax prepare mnist
    python experiments/fedprox_mlsys20/fig9_10.py --scale paper

This is Figure 1 with E = 1: training loss (Figure 9) and test accuracy (Figure 10).
"""

from cases import SHARES, three_methods
from curves import Row, markdown, run_all
from drawing import HERE, Place, grid, save, script, write
from fig1 import DATASETS, gains
from problems import Scale


def main(
    scale: Scale = "small",
    seeds: script.Seeds = (0, 1),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: Place = str(HERE),
) -> list[Row]:
    """One local epoch, of which stragglers do some steps."""
    cases = three_methods(DATASETS, SHARES, epochs=1)
    curves, rows = run_all(cases, scale, seeds, rounds, out)
    text = markdown("One epoch", rows) + "\n" + gains(rows)
    write(f"fig9_10_{scale}", rows, text, None, results)
    loss = grid(curves, "loss", "training loss", SHARES)
    save(f"fig9_{scale}", loss, results)
    accuracy = grid(curves, "accuracy", "test accuracy (%)", SHARES)
    save(f"fig10_{scale}", accuracy, results)
    return rows


if __name__ == "__main__":
    script.run(main)
