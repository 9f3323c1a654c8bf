"""The six places where SuPerFed's code departs from its paper, and their effect.

    pfljax prepare mnist
    python experiments/superfed_kdd22/deviations.py

The script runs both forms of each place (KDD 2022, and the code of its authors):

  - SCAFFOLD, which is FedAvg in the code;
  - pFedMe, which steps by epochs and is evaluated with w, and is APFL in CIFAR-10's
    column;
  - the types of noise, which are swapped, with noisy test labels;
  - lambda, which is chosen on test examples;
  - calibration errors, which are computed by batch;
  - proximal terms, which are not squared.

The runs use MNIST, 50 clients with two shards each (for noise a Dirichlet partition
with alpha = 100), 20 rounds, a tenth of the examples for validation, and three seeds.
pFedMe in its paper's form has the rates that the grid of `tuned.py` chose on all
examples, because it diverges at the rates of the others.

All places except the terms of FedProx and MM change a number (see `REPORT.md`). One
form with three seeds (`--only "pFedMe, code"`) took 3.5 min on one of two busy cores.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import forms
import numpy as np
from protocol import METHODS, MNIST, Method, by_method
from shared import script, swept
from shared.participation import took_part
from shared.published import decimals, std_over_seeds
from shared.swept import sweep
from table1 import START as START_OF
from tyro.conf import arg

from pfljax.runs.folder import read_json
from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache

BASE = MNIST.replace(clients=50, rounds=20, validation=0.1)
START = START_OF[50]["SuPerFed-MM"]
NOISY = {"partition": "dirichlet:alpha=100,balance=True"}
PLAIN = {"momentum": 0.0, "weight_decay": 0.0}
MM_HYPER = {"mixing": "model", "mu": 0.01, "nu": 1.0, **START}
RUNS: dict[str, tuple[Method, dict[str, Any]]] = {  # and what differs from BASE
    "FedAvg": (METHODS["FedAvg"], {}),
    "FedAvg, SGD": (METHODS["FedAvg"], {"lr": 0.1, **PLAIN}),
    "SCAFFOLD": (METHODS["SCAFFOLD"], {}),
    "pFedMe, code": (METHODS["pFedMe"], {}),
    "pFedMe, paper": (
        Method("pfedme", {"lam": 15.0, "inner_lr": 0.1}),
        {"lr": 0.03, **PLAIN},
    ),
    "APFL": (METHODS["APFL"], {}),
    "FedAvg, pair 0.4": (METHODS["FedAvg"], NOISY | {"noise": "pair:rate=0.4"}),
    "FedAvg, pair 0.4, legacy": (
        METHODS["FedAvg"],
        NOISY | {"noise": "pair_legacy:rate=0.4"},
    ),
    "FedProx, un-squared": (METHODS["FedProx"], {}),
    "FedProx, squared": (Method("fedprox", {"mu": 0.01}), {}),
    "Ditto, un-squared": (METHODS["Ditto"], {}),
    "Ditto, squared": (Method("ditto", {"lam": 1.0, "personal_epochs": 5}), {}),
    "SuPerFed-MM, un-squared": (Method(forms.form("superfed_code"), MM_HYPER), {}),
    "SuPerFed-MM, squared": (Method("superfed", MM_HYPER), {}),
}


class Form(NamedTuple):
    """One form of a place, and where its number is found."""

    name: str
    run: str  # a key of RUNS
    model: str = "personal"  # "server" or "mixture" else, with
    how: str = ""  # its lambda
    metric: str = "accuracy"


def best(run: str, split: str) -> tuple[str, str, str]:
    """`run`, model and lambda of a Form: of each client the best on these rows."""
    return run, "mixture", {"test": "oracle", "validation": "validation"}[split]


PLACES: dict[str, tuple[Form, ...]] = {
    "SCAFFOLD": (
        Form("code: it is FedAvg", "FedAvg"),
        Form("FedAvg, by the plain SGD of SCAFFOLD", "FedAvg, SGD"),
        Form("paper", "SCAFFOLD"),
    ),
    "pFedMe": (
        Form("code: by epochs, evaluated with w", "pFedMe, code", "server"),
        Form("the same, evaluated with theta", "pFedMe, code"),
        Form("paper, evaluated with theta", "pFedMe, paper"),
        Form("code in CIFAR-10's column: APFL", "APFL"),
    ),
    "noise, pair 0.4": (
        Form("code: symmetric, test labels too", "FedAvg, pair 0.4, legacy"),
        Form("paper", "FedAvg, pair 0.4"),
    ),
    "lambda, MM": (
        Form("code: best on test rows", *best("SuPerFed-MM, un-squared", "test")),
        Form("best on validation rows", *best("SuPerFed-MM, un-squared", "validation")),
        Form("one half", "SuPerFed-MM, un-squared"),
    ),
    "lambda, APFL": (
        Form("as MM's: best on test rows", *best("APFL", "test")),
        Form("best on validation rows", *best("APFL", "validation")),
        Form("its own, 0.25", "APFL"),
    ),
    "ECE, FedAvg": (
        Form("code: mean over batches of 10", "FedAvg", metric="ece_batchwise"),
        Form("of all rows of a client", "FedAvg", metric="ece"),
    ),
    "proximal term, FedProx": (
        Form("code: un-squared", "FedProx, un-squared"),
        Form("paper: squared", "FedProx, squared"),
    ),
    "proximal term, Ditto": (
        Form("code: un-squared", "Ditto, un-squared"),
        Form("paper: squared", "Ditto, squared"),
    ),
    "proximal term, MM": (
        Form("code: un-squared", *best("SuPerFed-MM, un-squared", "test")),
        Form("paper: squared", *best("SuPerFed-MM, squared", "test")),
    ),
}


def experiment_of(name: str, rounds: int) -> Experiment:
    """The experiment of this name in RUNS."""
    method, differs = RUNS[name]
    return by_method(BASE, method).replace(rounds=rounds, label=name, **differs)


def by_seed(rows: Sequence[Mapping[str, Any]], form: Form, metric: str) -> np.ndarray:
    """A sweep's means over clients after the last round; NaN if a client diverged."""
    last = max(row["round"] for row in rows)
    means = [
        row["mean"]
        for row in rows
        if (row["evaluated"], row["lambda"]) == (form.model, form.how)
        and (row["split"], row["metric"]) == ("test", metric)
        and row["round"] == last
    ]
    return np.array(means, float)


def number(rows: Sequence[Mapping[str, Any]], form: Form) -> tuple[float, float]:
    """(mean over clients and seeds, std over seeds), accuracies in percent."""
    values = by_seed(rows, form, form.metric)
    values *= 100 if form.metric == "accuracy" else 1
    return values.mean(), float(std_over_seeds(values))


def markdown(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The table of the forms whose runs are among `found`, rows by name of the run."""
    lines = ["| place | form | metric | mean over clients | std over seeds |"]
    lines.append("|---|---|---|---|---|")
    for place, listed in PLACES.items():
        for form in listed:
            if form.run in found:
                mean, std = number(found[form.run], form)
                lost = np.isnan(by_seed(found[form.run], form, "loss")).any()
                name = form.name + " (a client's loss is not finite)" * bool(lost)
                told = place, name, form.metric, f"{mean:.2f}", decimals(std)
                lines.append(f"| {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def main(
    seeds: script.Seeds = (0, 1, 2),
    rounds: script.Positive = BASE.rounds,
    only: Annotated[
        tuple[Literal[tuple(RUNS)], ...],
        arg(help="By default all.", metavar="FORM ..."),
    ] = (),
    out: str = "runs/superfed-deviations",
) -> None:
    """Runs what is not finished, and prints both forms of each place."""
    use_compile_cache()
    folder = Path(out)
    places = {name: folder / name.replace(", ", "-").replace(" ", "-") for name in RUNS}
    for name in only or RUNS:
        experiment, place = experiment_of(name, rounds), places[name]
        sweep(experiment, {"seed": seeds}, out=place, quiet=False)
        found = {n: ran(p, rounds, seeds) for n, p in places.items()}
        table = markdown({n: rows for n, rows in found.items() if rows})
        part = took_part(BASE.replace(rounds=rounds), seeds)
        text = (
            f"{rounds} rounds, seeds {list(seeds)}; clients that took part: "
            f"{part.sentence()}\n\n{table}"
        )
        (folder / "table.md").write_text(text, encoding="utf-8")
    print(text)


def ran(place: Path, rounds: int, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The rows of a finished sweep of these rounds and seeds; none of another."""
    if not (place / "sweep.csv").exists():
        return []
    rows = [
        row for row in swept.read(place).to_dict("records") if int(row["seed"]) in seeds
    ]
    whole = {int(row["seed"]) for row in rows if row["round"] == rounds}
    same = read_json(place / "sweep.json")["experiment"]["rounds"] == rounds
    return rows if same and whole == set(seeds) else []


if __name__ == "__main__":
    script.run(main)
