"""FedProx, Figures 2 and 6: four synthetic sets, from IID to the most different.

    python experiments/fedprox_mlsys20/fig2.py --scale paper

All devices do all their work. The figure shows loss, accuracy, and the variance of the
devices' gradients at the server's model. The variance is weighted by examples; the
paper's code weights devices equally.
"""

from typing import Any

from cases import BEST_MU, fedprox
from curves import Row, markdown, of, run_all
from drawing import HERE, STYLES, Place, draw, script, write
from problems import SYNTHETIC, TITLES, Scale

from pfljax.report.style import SETTINGS

QUANTITIES = {"loss": "training loss", "variance": "variance of gradients"}


def figure(curves: Any) -> Any:
    """Loss above, variance below; a column a data set."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS):
        drawn = Figure(figsize=(11, 5), layout="constrained")
        panels = drawn.subplots(2, len(SYNTHETIC))
        for row, (quantity, label) in zip(panels, QUANTITIES.items(), strict=True):
            for axes, dataset in zip(row, SYNTHETIC, strict=True):
                for one in of(curves, dataset=dataset):
                    draw(axes, one, quantity, **STYLES[one.case.label])
                axes.set_title(TITLES[dataset], fontsize=9)
                if quantity == "variance":
                    axes.set(yscale="log", xlabel="round")
            row[0].set_ylabel(label)
        panels[0][0].legend(frameon=False, fontsize=8)
    return drawn


def main(
    scale: Scale = "small",
    seeds: script.Seeds = (0, 1),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: Place = str(HERE),
) -> list[Row]:
    """Four synthetic sets, from IID to the most different."""
    cases = [fedprox(name, mu) for name in SYNTHETIC for mu in (0.0, BEST_MU)]
    curves, rows = run_all(cases, scale, seeds, rounds, out)
    text = markdown("Statistical heterogeneity", rows)
    write(f"fig2_{scale}", rows, text, figure(curves), results)
    return rows


if __name__ == "__main__":
    script.run(main)
