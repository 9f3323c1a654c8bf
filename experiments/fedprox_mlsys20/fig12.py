"""FedProx, Figure 12: two schemes of sampling and averaging.

    python experiments/fedprox_mlsys20/fig12.py --scale paper

All other experiments draw devices uniformly without replacement, and average by the
number of examples. Algorithm 2 draws them by the number of examples with replacement,
and takes the plain mean.
"""

from typing import Any

from cases import BEST_MU, fedprox
from curves import Row, markdown, of, run_all
from drawing import HERE, Place, draw, script, write
from problems import SYNTHETIC, TITLES, Scale

from pfljax.report.style import PALETTE, new_figure

SCHEMES = {"uniform": "uniform, mean by rows", "by_size": "by rows, plain mean"}


def figure(curves: Any) -> Any:
    """Training loss, a panel a data set."""
    drawn, panels = new_figure(12.0, 3.0, len(SYNTHETIC), sharey=False)
    for axes, dataset in zip(panels, SYNTHETIC, strict=True):
        for one in of(curves, dataset=dataset):
            by_size = one.case.selection == "by_size"
            held = "mu = 1" in one.case.label
            colour = PALETTE[1] if held else PALETTE[0]
            draw(axes, one, "loss", color=colour, linestyle="--" if by_size else "-")
        axes.set(title=TITLES[dataset], xlabel="round")
    panels[0].set_ylabel("training loss")
    panels[-1].legend(frameon=False, fontsize=7)
    return drawn


def main(
    scale: Scale = "small",
    seeds: script.Seeds = (0, 1),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: Place = str(HERE),
) -> list[Row]:
    """Who is drawn, and how models are averaged."""
    cases = []
    for dataset in SYNTHETIC:
        for mu in (0.0, BEST_MU):
            for scheme, text in SCHEMES.items():
                case = fedprox(dataset, mu, selection=scheme)
                cases.append(case._replace(label=f"mu = {mu:g}, {text}"))
    curves, rows = run_all(cases, scale, seeds, rounds, out)
    text = markdown("Sampling schemes", rows)
    write(f"fig12_{scale}", rows, text, figure(curves), results)
    return rows


if __name__ == "__main__":
    script.run(main)
