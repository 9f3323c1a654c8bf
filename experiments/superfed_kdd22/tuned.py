"""SuPerFed and its comparison methods, each tuned with the same budget.

    pfljax prepare mnist
    python experiments/superfed_kdd22/tuned.py --scale small

Each method has nine candidates: three learning rates by three values of one of its own
options (momentum, if it has no numeric option). They run on one seed as one sweep. The
candidate whose personal models have the best accuracy on the clients' validation
examples after the last round is chosen, and runs on all seeds. Methods have the papers'
forms (squared proximal terms, pFedMe with inner steps, APFL with an adaptive alpha).
The table also shows the form and the hyperparameters of the authors' code, in the same
rounds. The budget counts candidates and rounds, not time: pFedMe takes five gradients
for each minibatch, and FedRep, Ditto and APFL train longer in a round.

pFedMe goes from the last place to the third. Without it, Kendall's tau is 0.82 (see
`REPORT.md`). The small scale took 28 min on two busy cores.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from protocol import MNIST, NOTHING, applied
from shared import script
from shared.participation import Part, took_part
from shared.published import decimals, ranks, std_over_seeds, tau
from shared.swept import Sweep, sweep
from table1 import START
from tyro.conf import arg

from pfljax.core.components import Component
from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache
from pfljax.sweep import points

RATES = (0.003, 0.01, 0.03)
MOMENTA = (0.0, 0.5, 0.9)


class Tuned(NamedTuple):
    """What is tried of a method."""

    algorithm: str
    own: Mapping[str, Sequence[float]]  # three values beside the three rates
    hyper: Mapping[str, Any] = NOTHING
    rates: Sequence[float] = RATES
    settings: Mapping[str, Any] = NOTHING


PLAIN = {"momentum": 0.0, "weight_decay": 0.0}
GRID = {
    "FedAvg": Tuned("fedavg", {"momentum": MOMENTA}),
    "FedProx": Tuned("fedprox", {"mu": (0.001, 0.01, 0.1)}),
    "SCAFFOLD": Tuned(
        "scaffold", {"server_lr": (0.5, 1.0, 1.5)}, {}, (0.03, 0.1, 0.2), PLAIN
    ),
    "LG-FedAvg": Tuned("lg_fedavg", {"momentum": MOMENTA}),
    "FedPer": Tuned("fedper", {"momentum": MOMENTA}),
    "APFL": Tuned("apfl", {"alpha": (0.25, 0.5, 0.75)}),
    "pFedMe": Tuned(
        "pfedme",
        {"inner_lr": (0.03, 0.1, 0.3)},
        {"lam": 15.0, "inner_steps": 5},
        settings=PLAIN,
    ),
    "Ditto": Tuned("ditto", {"lam": (0.03, 0.1, 1.0)}),
    "FedRep": Tuned("fedrep", {"momentum": MOMENTA}, {"head_epochs": 10}),
    "SuPerFed-MM": Tuned("superfed", {"nu": (0.0, 1.0, 2.0)}, {"mixing": "model"}),
    "SuPerFed-LM": Tuned("superfed", {"nu": (0.0, 1.0, 2.0)}, {"mixing": "layer"}),
}
SCALES = {
    "small": MNIST.replace(
        dataset="mnist:every=10", clients=50, rounds=20, validation=0.1
    ),
    "paper": MNIST.replace(rounds=500, validation=0.1),
}


class Line(NamedTuple):
    """A row of the table; accuracies in percent on test rows."""

    method: str
    chosen: str
    mean: float  # over clients, mean over seeds
    over_clients: float
    over_seeds: float
    published: float  # in the published form, mean over clients and seeds
    diverged: int  # tuned seeds whose loss is not finite
    of: str  # rounds and seeds of the two numbers


def best(found: Sweep) -> dict[str, Any]:
    """The point with the best validation accuracy after the last round."""
    scores = found.stacked("personal/validation/accuracy")[:, -1]
    return found.results[int(np.nanmean(scores, axis=1).argmax())].values


def accuracy(found: Sweep) -> tuple[float, float, float]:
    """(mean, std over clients, std over seeds) of the personal models, percent."""
    values = 100 * found.stacked("personal/test/accuracy")[:, -1]
    means = values.mean(1)
    spread = float(std_over_seeds(means))
    return float(means.mean()), float(values.std(1).mean()), spread


def diverged(found: Sweep) -> int:
    """Runs with a client whose last loss is not finite; accuracies always are."""
    has_rows = np.stack([result.size["test"] > 0 for result in found.results])
    lost = ~np.isfinite(found.stacked("personal/test/loss")[:, -1])
    return int((lost & has_rows).any(1).sum())


def line(base: Experiment, label: str, seeds: Sequence[int], out: Path) -> Line:
    """Tunes a method, and runs the choice and the paper's hyperparameters."""
    tuned = GRID[label]
    experiment = base.replace(
        algorithm=Component(tuned.algorithm, tuned.hyper), label=label, **tuned.settings
    )
    over = {"lr": tuned.rates, **tuned.own, "seed": (seeds[0],)}
    grid = sweep(experiment, over, out=out / "grid" / label, quiet=False)
    point = {name: [value] for name, value in best(grid).items()} | {"seed": seeds}
    theirs = applied(base, label, START[base.clients or 0].get(label, {}))
    chosen = sweep(experiment, point, out=out / "chosen" / label)
    given = sweep(theirs, {"seed": seeds}, out=out / "paper" / label)
    told = ", ".join(f"{k} {v[0]:g}" for k, v in point.items() if k != "seed")
    numbers = *accuracy(chosen), accuracy(given)[0]
    of = f"{base.rounds} rounds, seeds {sorted(seeds)}"
    return Line(label, told, *numbers, diverged(chosen), of)


def markdown(lines: Sequence[Line], base: Experiment, part: Part) -> str:
    """The table, best first, with both rankings; `part` took part."""
    ours, theirs = [x.mean for x in lines], [x.published for x in lines]
    ranked = sorted(zip(ranks(ours), ranks(theirs), lines, strict=True))
    rows = [
        f"| {x.method} | {x.chosen} | {x.mean:.2f} ± {x.over_clients:.2f} | "
        f"{decimals(x.over_seeds)} | {x.published:.2f} | {own}, {told} |"
        for own, told, x in ranked
    ]
    lost = [x for x in lines if x.diverged]
    told = ", ".join(f"{x.method} ({x.diverged})" for x in lost)
    agree = f"{tau(theirs, ours):.2f}" if len(lines) > 2 else ""
    return (
        f"{base.dataset}, {base.rounds} rounds; "
        f"clients that took part: "
        f"{part.sentence()}\n\n"
        "| method | chosen on validation rows | tuned (%) | std over seeds | as "
        "published (%) | rank tuned, as published |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + (f"\n\nKendall's tau of the two rankings: {agree}\n" if agree else "\n")
        + (f"\nTuned seeds that did not end finite: {told}\n" if lost else "")
    )


def main(
    scale: Literal["small", "paper"] = "small",
    seeds: script.Seeds = (0, 1, 2),
    only: Annotated[
        tuple[Literal[tuple(GRID)], ...],
        arg(help="By default all.", metavar="METHOD ..."),
    ] = (),
    rounds: script.Rounds = None,
    out: Annotated[str | None, arg(help="Else runs/superfed-tuned-SCALE.")] = None,
) -> None:
    """Tunes what is not tuned; the table has all that is, of these rounds and seeds."""
    folder = Path(out or f"runs/superfed-tuned-{scale}")
    base = SCALES[scale]
    base = base.replace(rounds=rounds or base.rounds)
    # Refused now, and not after the first grid.
    points.combine({"seed": seeds})
    use_compile_cache()
    for label in only or GRID:
        tuned = line(base, label, seeds, folder)
        kept = [x for x in saved(folder) if (x.method, x.of) != (label, tuned.of)]
        lines = [*(old for old in kept if old.of == tuned.of), tuned]
        text = markdown(lines, base, took_part(base, seeds))
        write(folder, [*kept, tuned], text)
    print(text)


def saved(out: Path) -> list[Line]:
    """The rows of the table that was written before."""
    if not (out / "table.csv").exists():
        return []
    with open(out / "table.csv", newline="", encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    numbers = ("mean", "over_clients", "over_seeds", "published")
    kinds = dict.fromkeys(numbers, float) | {"diverged": int}
    return [
        Line(**{k: kinds.get(k, str)(v) for k, v in row.items()})
        for row in rows
        if "of" in row  # or it is of an older script
    ]


def write(out: Path, lines: Sequence[Line], text: str) -> None:
    """table.csv of all that was ever tuned there, table.md of this call's rounds."""
    with open(out / "table.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Line._fields)
        writer.writerows(lines)
    (out / "table.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    script.run(main)
