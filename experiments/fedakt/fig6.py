"""FedAKT, Figure 6: pooled accuracy by round in the runs of Table 3 (JSA 2025).

    python experiments/fedakt/table3.py --scale small
    python experiments/fedakt/fig6.py --scale small

This script trains nothing. We could not read the paper's curves.
"""

import csv
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from protocol import LATER, METHODS, RESULTS

# After `protocol`, which puts the folder of `shared` on the path.
from shared import script
from table3 import COLUMNS
from tyro.conf import arg

from pfljax.report.style import GRID, line_styles, new_figure, save_figure

LABELS = (*METHODS, *LATER)


def curve(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """(rounds i[T], pooled accuracy in percent f[T], mean over seeds) of a sweep."""
    by_round = defaultdict(list)
    with open(folder / "sweep.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            what = row["evaluated"], row["split"], row["metric"]
            if what == ("personal", "test", "accuracy"):
                # "weighted" is by test rows: the pooled accuracy.
                by_round[int(row["round"])].append(float(row["weighted"] or "nan"))
    rounds = sorted(by_round)
    return np.array(rounds), 100 * np.array([np.mean(by_round[r]) for r in rounds])


def main(
    scale: Literal["small", "paper"] = "small",
    runs: Annotated[str | None, arg(help="Else runs/fedakt-SCALE.")] = None,
    results: Annotated[str | None, arg(help="Else beside this.")] = None,
) -> None:
    """Draws what is finished of Table 3, a panel a column."""
    folder = Path(runs or f"runs/fedakt-{scale}")
    names = [c.name for c in COLUMNS if (folder / c.name).is_dir()]
    if not names:
        raise SystemExit(f"no run in {folder}; run table3.py --scale {scale} first")
    drawn, panels = new_figure(1.5 + 3.2 * len(names), 3.2, len(names), sharey=True)
    styles = line_styles(LABELS)
    for axes, name in zip(panels, names, strict=True):
        for label in LABELS:
            if not (folder / name / label / "sweep.csv").exists():
                continue
            rounds, accuracy = curve(folder / name / label)
            width = 2.5 if label == "FedAKT" else 1.0
            style = {**styles[label], "linewidth": width}
            axes.plot(rounds, accuracy, **style, label=label)
        axes.set(title=name, xlabel="round")
        axes.grid(**GRID)
    panels[0].set_ylabel("pooled accuracy (%)")
    panels[-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(drawn, Path(results or RESULTS) / f"fig6_{scale}")


if __name__ == "__main__":
    script.run(main)
