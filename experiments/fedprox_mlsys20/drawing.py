"""Draws the FedProx paper's curves, and writes the figures and tables."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cases import Case
from curves import Curve, of
from problems import TITLES
from tyro.conf import arg

from pfljax.report.style import GREY, GRID, PALETTE, SETTINGS, save_figure

HERE = Path(__file__).parent
# What the replications share lies beside the papers' folders, in no package.
sys.path.append(str(HERE.parent))
from shared import best_round  # noqa: E402
from shared import script as script  # noqa: E402

Place = Annotated[str, arg(help="Folder of results/ and figures/; else this one.")]
STYLES: dict[str, dict[str, Any]] = {
    "FedAvg": {"color": GREY, "linestyle": "--"},
    "FedProx, mu = 0": {"color": PALETTE[0]},
    "FedProx, mu = 1": {"color": PALETTE[1]},
    "FedNova": {"color": PALETTE[3]},
    "FedDyn": {"color": PALETTE[4]},
}


def grid(curves: Sequence[Curve], quantity: str, label: str, shares: Any) -> Any:
    """Panels by data set, a row, and share of stragglers, a column."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    datasets = list(dict.fromkeys(one.case.dataset for one in curves))
    with rc_context(SETTINGS):
        size = (3.2 * len(shares), 2.6 * len(datasets))
        drawn = Figure(figsize=size, layout="constrained")
        panels = drawn.subplots(len(datasets), len(shares), squeeze=False)
        for dataset, row in zip(datasets, panels, strict=True):
            for share, axes in zip(shares, row, strict=True):
                for one in of(curves, dataset=dataset, stragglers=share):
                    draw(axes, one, quantity, **style_of(one.case))
                axes.set_title(f"{TITLES[dataset]}, {100 * share:g} % late", fontsize=9)
            row[0].set_ylabel(label)
        for axes in panels[-1]:
            axes.set_xlabel("round")
        handles, labels = panels[0][-1].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside upper center", ncols=3)
    return drawn


def style_of(case: Case) -> dict[str, Any]:
    """The colour of a method; one of its own for a mu that is not the paper's."""
    return STYLES.get(case.label, {"color": PALETTE[2]})


def draw(axes: Any, one: Curve, quantity: str, **style: Any) -> None:
    """A quantity of a curve by round: the mean over seeds."""
    values = getattr(one, quantity)
    axes.plot(one.rounds, values.mean(0), label=one.case.label, **style)
    axes.grid(axis="y", **GRID)


def write(name: str, rows: Sequence[Any], text: str, drawn: Any, place: str) -> None:
    """Prints the table, and writes it and its figure below `place`."""
    print(text)
    best_round.write(Path(place) / "results" / name, rows, text)
    if drawn is not None:
        save(name, drawn, place)


def save(name: str, drawn: Any, place: str) -> None:
    """Writes a figure below `place`."""
    folder = Path(place) / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(drawn, folder / name)
