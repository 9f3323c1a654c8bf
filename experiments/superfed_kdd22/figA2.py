"""SuPerFed, Figure A2: accuracy over lambda, APFL, MM and LM (KDD 2022).

    pfljax prepare mnist
    python experiments/superfed_kdd22/figA2.py --scale small

The runs are those of Table 1's column of MNIST with 500 clients, from its folder if
they are there. The figure shows the mean over clients of the accuracy at (1 - lambda) w
+ lambda v after the last round. The band is the standard deviation over clients, and
the bars are the standard deviation over seeds. In the paper APFL peaks near its lambda
of 0.25, and SuPerFed is flat.

At paper scale APFL falls by 35 points towards lambda = 1, and MM and LM by 5 and 6 (see
`REPORT.md`). The paper prints no numbers to compare with. The small scale with one seed
took 91 s on one core.
"""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from protocol import experiment_of
from shared import script
from shared.published import std_over_seeds
from shared.swept import Sweep, sweep
from table1 import COLUMNS
from tyro.conf import arg

from pfljax.evaluation.over_clients import GRID
from pfljax.report.style import BAND, PALETTE, new_figure, save_figure
from pfljax.report.style import GRID as LINES
from pfljax.runtime.devices import use_compile_cache

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = ("APFL", "SuPerFed-MM", "SuPerFed-LM")
(COLUMN,) = (column for column in COLUMNS if column.name == "MNIST-K500")


def curve(found: Sweep) -> np.ndarray:
    """Over lambda, in percent, f[3, 11]; the last row is NaN for one seed.

    Mean over clients and seeds, std over clients (mean over seeds), std over seeds.
    """
    paths = 100 * np.stack([r.path["test/accuracy"] for r in found.results])
    means = paths.mean(1)
    return np.stack([means.mean(0), paths.std(1).mean(0), std_over_seeds(means)])


def figure(curves: dict[str, np.ndarray]) -> "Figure":
    """A line a method; bands are of `curve`'s std over clients, bars over seeds."""
    drawn, (axes,) = new_figure(5.2, 3.4)
    for (label, found), colour in zip(curves.items(), PALETTE, strict=False):
        mean, std, over_seeds = np.nan_to_num(found)
        drawing = {"fmt": "o-", "capsize": 3, "color": colour}
        axes.errorbar(GRID, mean, yerr=over_seeds, **drawing, label=label)
        axes.fill_between(GRID, mean - std, mean + std, color=colour, **BAND)
    axes.set(xlabel="lambda", ylabel="test accuracy (%), mean over clients")
    axes.set_ylim(top=101)
    axes.grid(axis="y", **LINES)
    axes.legend(frameon=False)
    return drawn


def write_table(curves: dict[str, np.ndarray], out: Path) -> None:
    """table.csv, a line a method and lambda."""
    with open(out / "table.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("method", "lambda", "mean", "over_clients", "over_seeds"))
        for label, found in curves.items():
            for t, row in zip(GRID, found.T.round(4), strict=True):
                writer.writerow((label, t, *row))


def main(
    scale: Literal["small", "paper"] = "small",
    seeds: script.Seeds = (0, 1, 2),
    runs: Annotated[
        str | None, arg(help="Of Table 1, else runs/superfed-table1-SCALE.")
    ] = None,
    out: Annotated[str | None, arg(help="Else runs/superfed-figA2-SCALE.")] = None,
) -> None:
    """Runs what is not finished, prints the curves and draws them."""
    use_compile_cache()
    table1 = Path(runs or f"runs/superfed-table1-{scale}")
    curves = {}
    for label in LABELS:
        experiment = experiment_of(COLUMN, label, scale == "small")
        place = table1 / COLUMN.name / label
        found = sweep(experiment, {"seed": seeds}, out=place, quiet=False)
        curves[label] = curve(found)
        mean = curves[label][0]
        flat = sum(mean >= mean.max() - 1)
        told = " ".join(f"{value:.1f}" for value in mean)
        print(f"{label}: {told}; within a point of the best at {flat} of 11 lambdas")
        if len(seeds) > 1:
            spread = " ".join(f"{value:.1f}" for value in curves[label][2])
            print(f"{label}, std over seeds: {spread}")
    folder = Path(out or f"runs/superfed-figA2-{scale}")
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(figure(curves), folder / "figA2")
    write_table(curves, folder)
    print(f"see {folder}/figA2.png and table.csv")


if __name__ == "__main__":
    script.run(main)
