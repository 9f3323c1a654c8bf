"""Where SuPerFed's code departs from its paper, and what that does to the numbers.

    pfljax prepare mnist
    python experiments/superfed_deviations.py

Six places (KDD 2022 and the code of its authors), both forms of each: SCAFFOLD that is
FedAvg; pFedMe stepped by epochs and judged by w, and in CIFAR-10's column APFL; noise
types swapped, with noisy test labels; lambda chosen on test rows; calibration errors by
batch; un-squared proximal terms. MNIST, 50 clients with two shards each, or dealt by
Dirichlet of alpha = 100 for noise; 20 rounds, a tenth of the rows for validation, three
seeds.

What was reached: `README.md` here.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from beside import decimals
from superfed import MNIST, applied, positive
from superfed_table1 import START as START_OF

from pfljax import mistakes
from pfljax.cli import use_compile_cache
from pfljax.sweep import Sweep, sweep

BASE = MNIST.replace(clients=50, rounds=20, validation=0.1)
START = START_OF[50]["SuPerFed-MM"]
NOISY = {"partition": "dirichlet_over_clients:alpha=100,balance=True"}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {  # name -> method, what differs
    "FedAvg": ("FedAvg", {}),
    "SCAFFOLD": ("SCAFFOLD", {}),
    "pFedMe, code": ("pFedMe", {}),
    "pFedMe, paper": (
        "pFedMe",
        {"hyper": {"as_in": "paper", "weighting": "uniform"}, "momentum": 0.0},
    ),
    "APFL": ("APFL", {}),
    "FedAvg, pair .4": ("FedAvg", NOISY | {"noise": "pair:rate=0.4"}),
    "FedAvg, pair .4, legacy": (
        "FedAvg",
        NOISY | {"noise": "pair:rate=0.4,legacy=True"},
    ),
    "FedProx, un-squared": ("FedProx", {}),
    "FedProx, squared": ("FedProx", {"hyper": {"mu": 0.01, "prox": "squared"}}),
    "Ditto, un-squared": ("Ditto", {}),
    "Ditto, squared": ("Ditto", {"hyper": {"prox": "squared"}}),
    "SuPerFed-MM, un-squared": ("SuPerFed-MM", {"hyper": START}),
    "SuPerFed-MM, squared": (
        "SuPerFed-MM",
        {"hyper": START | {"prox": "squared"}},
    ),
}


class Shown(NamedTuple):
    """One number of the table."""

    place: str  # where code and paper part
    form: str
    run: str  # a key of RUNS
    model: str = "personal"
    how: str = ""  # lambda
    metric: str = "accuracy"


SHOWN = (
    Shown("SCAFFOLD", "code: it is FedAvg", "FedAvg"),
    Shown("SCAFFOLD", "paper", "SCAFFOLD"),
    Shown("pFedMe", "code: by epochs, judged by w", "pFedMe, code", "server"),
    Shown("pFedMe", "code, judged by theta", "pFedMe, code"),
    Shown("pFedMe", "paper, judged by theta", "pFedMe, paper"),
    Shown("pFedMe", "code in CIFAR-10's column: APFL", "APFL"),
    Shown(
        "noise, pair .4", "code: symmetric, test labels too", "FedAvg, pair .4, legacy"
    ),
    Shown("noise, pair .4", "paper", "FedAvg, pair .4"),
    Shown(
        "lambda, MM",
        "code: best on test rows",
        "SuPerFed-MM, un-squared",
        "mixture",
        "oracle",
    ),
    Shown(
        "lambda, MM",
        "best on validation rows",
        "SuPerFed-MM, un-squared",
        "mixture",
        "validation",
    ),
    Shown("lambda, MM", "one half", "SuPerFed-MM, un-squared"),
    Shown("lambda, APFL", "as MM's: best on test rows", "APFL", "mixture", "oracle"),
    Shown("lambda, APFL", "best on validation rows", "APFL", "mixture", "validation"),
    Shown("lambda, APFL", "its own, .25", "APFL"),
    Shown(
        "ECE, FedAvg", "code: mean over batches of 10", "FedAvg", metric="ece_batchwise"
    ),
    Shown("ECE, FedAvg", "of all rows of a client", "FedAvg", metric="ece"),
    *(
        Shown(
            f"proximal term, {name}", form, f"{name}, {form.partition(' ')[2]}", *judged
        )
        for name, judged in (
            ("FedProx", ()),
            ("Ditto", ()),
            ("SuPerFed-MM", ("mixture", "oracle")),
        )
        for form in ("code: un-squared", "paper: squared")
    ),
)


def number(found: Sweep, shown: Shown) -> tuple[float, float]:
    """(mean over clients and seeds, std over seeds), accuracies in percent."""
    rows = [
        row["mean"]
        for row in found.rows()
        if (row["judged"], row["lambda"]) == (shown.model, shown.how)
        and (row["split"], row["metric"]) == ("test", shown.metric)
        and row["round"] == found.experiment.rounds
    ]
    values = np.array(rows) * (100 if shown.metric == "accuracy" else 1)
    return values.mean(), values.std(ddof=1) if len(values) > 1 else np.nan


@mistakes.in_one_line()
def main() -> None:
    """Runs what is not finished, and prints both forms of each place."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=positive, default=BASE.rounds)
    parser.add_argument("--out", default="runs/superfed-deviations")
    given = parser.parse_args()
    use_compile_cache()
    found = {}
    for name, (label, differs) in RUNS.items():
        more = {k: v for k, v in differs.items() if k != "hyper"}
        experiment = applied(BASE, label, differs.get("hyper", {}))
        experiment = experiment.replace(rounds=given.rounds, label=name, **more)
        place = Path(given.out) / name.replace(", ", "-").replace(" ", "-")
        found[name] = sweep(experiment, {"seed": given.seeds}, out=place, quiet=False)
    lines = ["| place | form | metric | mean over clients | std over seeds |"]
    lines.append("|---|---|---|---|---|")
    for shown in SHOWN:
        mean, std = number(found[shown.run], shown)
        told = shown.place, shown.form, shown.metric, f"{mean:.2f}", decimals(std)
        lines.append(f"| {' | '.join(told)} |")
    text = "\n".join(lines) + "\n"
    (Path(given.out) / "table.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
