"""FedProx, Figures 3 and 11: mu that follows the training loss.

    python experiments/fedprox_mlsys20/fig3.py --scale paper

Adaptive mu begins at the wrong end, as in the paper: 1 on IID examples, and 0 on
Synthetic (1, 1). The heuristic begins at the right end. Both compare the loss of the
ten devices of a round with the loss of the same devices when they last took part. The
paper's rule uses the loss of all devices.
"""

from typing import Any

from cases import BEST_MU, Case, fedprox
from curves import Row, markdown, of, run_all
from drawing import HERE, STYLES, Place, draw, script, write
from problems import TITLES, Scale

from pfljax.report.style import PALETTE, new_figure

WRONG = {"synthetic_iid": 1.0, "synthetic_1_1": 0.0}  # where adaptive mu begins
ADAPTIVE = {
    "FedProx, adaptive mu": {"color": PALETTE[2]},
    "FedProx, heuristic mu": {"color": PALETTE[3], "linestyle": ":"},
}


def cases_of(dataset: str) -> list[Case]:
    """mu fixed, adaptive and by the heuristic."""
    start = (("mu", WRONG[dataset]),)
    iid = (("iid", dataset == "synthetic_iid"),)
    adaptive, heuristic = ADAPTIVE
    return [
        fedprox(dataset, 0.0),
        fedprox(dataset, BEST_MU),
        Case(dataset, adaptive, "fedprox_adaptive", start),
        Case(dataset, heuristic, "fedprox_heuristic", iid),
    ]


def figure(curves: Any) -> Any:
    """Loss of both data sets, and mu."""
    drawn, panels = new_figure(10.5, 3.2, 3)
    styles = STYLES | ADAPTIVE
    for axes, dataset in zip(panels, WRONG, strict=False):
        for one in of(curves, dataset=dataset):
            draw(axes, one, "loss", **styles[one.case.label])
        axes.set(title=TITLES[dataset], ylabel="training loss", xlabel="round")
        axes.legend(frameon=False, fontsize=7)
    for dataset, dash in zip(WRONG, ("-", "--"), strict=True):
        for label, style in ADAPTIVE.items():
            (one,) = of(curves, dataset=dataset, label=label)
            drawn_as: Any = {"color": style["color"], "linestyle": dash}
            panels[2].plot(one.rounds, one.mu.mean(0), **drawn_as)
            panels[2].lines[-1].set_label(f"{label.split()[1]}, {TITLES[dataset]}")
    panels[2].set(title="mu", xlabel="round")
    panels[2].legend(frameon=False, fontsize=7)
    return drawn


def main(
    scale: Scale = "small",
    seeds: script.Seeds = (0, 1),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: Place = str(HERE),
) -> list[Row]:
    """mu that follows the training loss."""
    cases = [case for dataset in WRONG for case in cases_of(dataset)]
    curves, rows = run_all(cases, scale, seeds, rounds, out)
    text = markdown("Adaptive mu", rows)
    write(f"fig3_{scale}", rows, text, figure(curves), results)
    return rows


if __name__ == "__main__":
    script.run(main)
