"""SuPerFed, Figure 3: the grid of mu and nu, CIFAR-10, 100 clients (KDD 2022).

    pfljax prepare cifar10
    python experiments/superfed_kdd22/fig3.py --scale small

The 16 points of MM and of LM are one sweep of two compiled programs. On a CPU every
core takes one run after another, and an accelerator takes the runs of a program under
one vmap. The published accuracies are those of each client's best lambda, averaged over
clients, after 100 rounds. Mixing begins after 40 % of the rounds, as in the text; the
authors' script has 0. The small scale is MNIST with 500 clients and 20 rounds.
`--separate` runs every point as a separate run. Both forms print the number of points
that they ran, and the seconds.

mu = 1 is too much, as published. Three seeds cannot distinguish the other three values,
and nu has no effect yet (see `REPORT.md`). At the small scale with one seed the sweep
took 466 s on one core, and `--separate` 1,142 s.
"""

import csv
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from forms import form
from protocol import CIFAR10, MNIST, PUBLISHED
from shared import script
from shared.participation import took_part
from shared.published import published, std_over_seeds, tau
from shared.swept import Sweep, sweep
from tyro.conf import arg

from pfljax.report.heat_maps import heat_map
from pfljax.report.style import new_figure, save_figure
from pfljax.runs import folder
from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache
from pfljax.simulate.run import run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MU, NU = (0.0, 0.01, 0.1, 1.0), (0.0, 1.0, 2.0, 5.0)
LABELS = {"model": "SuPerFed-MM", "layer": "SuPerFed-LM"}
FORM = f"{form('superfed_code')}:start=0.4"
PAPER = CIFAR10.replace(algorithm=FORM, rounds=100)
SMALL = MNIST.replace(algorithm=FORM, rounds=20, clients=500)


def grid(found: Sweep, mixing: str) -> np.ndarray:
    """Accuracy (%) of the clients' best lambda, mean over clients: f[2, mu, nu].

    First the mean over seeds, then the std over them, NaN for one seed.
    """
    table = np.zeros((2, len(MU), len(NU)))
    for i, mu in enumerate(MU):
        for j, nu in enumerate(NU):
            wanted = {"mu": mu, "nu": nu, "mixing": mixing}
            best = [
                100 * result.path["test/accuracy"].max(1).mean()
                for result in found.results
                if wanted.items() <= result.values.items()
            ]
            table[:, i, j] = np.mean(best), std_over_seeds(np.array(best))
    return table


def theirs(mixing: str) -> np.ndarray:
    """The published grid, as `grid`; of one seed."""
    wanted = {"table": "F3", "metric": "best_top1_acc_pct"}
    table = np.array(
        [
            [
                published(PUBLISHED, wanted | {"setting": f"mu={mu:g};nu={nu:g}"})[
                    LABELS[mixing]
                ][0]
                for nu in NU
            ]
            for mu in MU
        ]
    )
    return np.stack([table, np.full_like(table, np.nan)])


def figure(grids: Mapping[str, np.ndarray]) -> "Figure":
    """Heat maps of `grid`s side by side, each with its own scale of colours."""
    drawn, panels = new_figure(3.9 * len(grids), 3.2, len(grids))
    for axes, (title, (values, spread)) in zip(panels, grids.items(), strict=True):
        texts = np.full(values.shape, "", dtype=object)
        for cell, value in np.ndenumerate(values):
            std = "" if np.isnan(spread[cell]) else f"\n± {spread[cell]:.1f}"
            texts[cell] = f"{value:.1f}{std}"
        heat_map(axes, values, "accuracy (%)", texts.tolist())
        axes.set_xticks(range(len(NU)), [f"{nu:g}" for nu in NU])
        axes.set_yticks(range(len(MU)), [f"{mu:g}" for mu in MU])
        axes.set(xlabel="nu", ylabel="mu")
        axes.set_title(title, fontsize=9)
    return drawn


def write_table(grids: Mapping[str, tuple[np.ndarray, np.ndarray]], out: Path) -> None:
    """table.csv of (published, here), a line a point."""
    with open(out / "table.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("method", "mu", "nu", "published", "mean", "over_seeds"))
        for label, (told, (mean, std)) in grids.items():
            for (i, j), value in np.ndenumerate(told[0]):
                at = MU[i], NU[j], value, round(mean[i, j], 4), round(std[i, j], 4)
                writer.writerow((label, *at))


def describe(experiment: Experiment) -> str:
    """The problem in a few words."""
    clients, rounds = experiment.clients, experiment.rounds
    return f"{experiment.dataset}, {clients} clients, {rounds} rounds"


def separately(experiment: Experiment, over: Mapping[str, Any], out: Path) -> int:
    """Every point as a run of its own; how many were not finished before."""
    from pfljax.sweep import points

    left = 0
    for values in points.combine(over):
        name = "-".join(f"{k}={v}" for k, v in values.items())
        one = points.set_values(experiment, values).replace(out=str(out / name))
        left += not folder.complete(out / name, one)
        run(one, quiet=True, report=False)
    return left


def together(experiment: Experiment, over: Mapping[str, Any], out: Path) -> Sweep:
    """All points as one sweep, which tells its seconds."""
    start, before = time.perf_counter(), len([*out.glob("*/s*/summary.json")])
    found = sweep(experiment, over, out=out, quiet=False)
    ran = len([*out.glob("*/s*/summary.json")]) - before
    print(f"as one sweep: {pace(ran, time.perf_counter() - start)}")
    return found


def pace(ran: int, seconds: float) -> str:
    """How many points ran, and how long one took."""
    each = f", {seconds / ran:.1f} s a point" if ran else ""
    return f"{ran} points ran in {seconds:.0f} s{each}"


def main(
    scale: Literal["small", "paper"] = "small",
    seeds: script.Seeds = (0, 1, 2),
    rounds: script.Rounds = None,
    separate: Annotated[bool, arg(help="A run for each point, no sweep.")] = False,
    out: Annotated[str | None, arg(help="Else runs/superfed-fig3-SCALE.")] = None,
) -> None:
    """Runs the grid and draws it beside the published one."""
    path = Path(out or f"runs/superfed-fig3-{scale}")
    experiment = {"small": SMALL, "paper": PAPER}[scale]
    experiment = experiment.replace(rounds=rounds or experiment.rounds)
    over = {"mixing": (*LABELS,), "mu": MU, "nu": NU, "seed": seeds}
    use_compile_cache()
    if separate:
        start = time.perf_counter()
        ran = separately(experiment, over, path / "separate")
        print(f"one after another: {pace(ran, time.perf_counter() - start)}")
        return
    found = together(experiment, over, path)
    grids: dict[str, np.ndarray] = {}
    both: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    theirs_on, ours_on = describe(PAPER), describe(experiment)
    for mixing, label in LABELS.items():
        both[label] = told, ours = theirs(mixing), grid(found, mixing)
        rank = tau(told[0].ravel().tolist(), ours[0].ravel().tolist())
        print(f"{label}: Kendall's tau with the published grid {rank:.2f}")
        published_as, here_as = f"{label}, published\n", f"{label}, here\n"
        grids |= {published_as + theirs_on: told, here_as + ours_on: ours}
    print(f"clients that took part: {took_part(experiment, seeds).sentence()}")
    save_figure(figure(grids), path / "fig3")
    write_table(both, path)
    print(f"see {path}/fig3.png and table.csv")


if __name__ == "__main__":
    script.run(main)
