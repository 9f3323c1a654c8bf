"""SuPerFed, Figure A2: accuracy over lambda, APFL, MM and LM (KDD 2022).

    pfljax prepare mnist
    python experiments/superfed_kdd22/figA2.py --scale small

MNIST, 500 clients: the runs of Table 1's column, from its folder if they are there.
Mean over clients of the accuracy at (1 - lambda) w + lambda v after the last round; the
band is the std over clients, the bars are that over seeds. Published: APFL peaks near
its lambda of .25, SuPerFed is flat.

What was reached at paper scale: APFL falls by 35 points towards lambda = 1, MM and LM
by 5 and 6 (`REPORT.md`). The paper prints no numbers to put beside them. The small
scale with one seed took 91 s on one core.
"""

import argparse
import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from protocol import experiment_of
from shared.published import std_over_seeds
from table1 import COLUMNS

from pfljax.evaluation.metrics import GRID
from pfljax.report.style import BAND, PALETTE, new_figure, save_figure
from pfljax.report.style import GRID as LINES
from pfljax.runtime import errors
from pfljax.runtime.devices import use_compile_cache
from pfljax.sweep import Sweep, sweep

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


@errors.in_one_line()
@errors.stopped_at_once()
def main() -> None:
    """Runs what is not finished, prints the curves and draws them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=("small", "paper"), default="small")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", help="of Table 1; default runs/superfed-table1-SCALE")
    parser.add_argument("--out", help="default runs/superfed-figA2-SCALE")
    given = parser.parse_args()
    use_compile_cache()
    runs = Path(given.runs or f"runs/superfed-table1-{given.scale}")
    curves = {}
    for label in LABELS:
        experiment = experiment_of(COLUMN, label, given.scale == "small")
        place = runs / COLUMN.name / label
        found = sweep(experiment, {"seed": given.seeds}, out=place, quiet=False)
        curves[label] = curve(found)
        mean = curves[label][0]
        flat = sum(mean >= mean.max() - 1)
        told = " ".join(f"{value:.1f}" for value in mean)
        print(f"{label}: {told}; within a point of the best at {flat} of 11 lambdas")
        if len(given.seeds) > 1:
            spread = " ".join(f"{value:.1f}" for value in curves[label][2])
            print(f"{label}, std over seeds: {spread}")
    out = Path(given.out or f"runs/superfed-figA2-{given.scale}")
    out.mkdir(parents=True, exist_ok=True)
    save_figure(figure(curves), out / "figA2")
    write_table(curves, out)
    print(f"see {out}/figA2.png and table.csv")


if __name__ == "__main__":
    main()
