"""FedAKT, Table 6: the cost of the methods with CIFAR-100 and five CNNs (JSA 2025).

    python experiments/fedakt/table6.py
    python experiments/fedakt/table6.py --rounds 8         # and the seconds of a round

The table shows the floats of a client in a round, counted from the leaves that are sent
and by the paper's formula for a client with 10 of 100 classes. It also shows the GFLOPs
of a local step on 10 examples: those of its products, and those of all operations as
XLA counts them in the lowered step. Numbers are means over the five architectures.
Seconds are those of the small scale of Table 3 on this machine. We could not read the
paper's numbers. Its text orders time as LG-FedAvg, FedDistill, FedProto < FedAKT <
FedGen, FML, FedKD and traffic as FedDistill, FedProto < FedAKT < FedGen < FML, FedKD.
"""

import csv
import tempfile
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from cost import extras, floats, formula, groups_of, sizes, step_flops
from protocol import LATER, METHODS, RESULTS, experiment_of
from shared import script
from table3 import COLUMNS
from tyro.conf import arg

from pfljax.runtime.devices import use_compile_cache
from pfljax.simulate.run import run

CLASSES, HELD = 100, 10


class Cost(NamedTuple):
    """A row of the table."""

    method: str
    up: float  # floats, as counted by the paper
    down: float
    formula: float  # both ways; FedKD at rank r = 1
    sent_here: float  # both ways, with rows for classes that the client lacks
    gflops_a_step: float  # of products and convolutions
    gflops_by_xla: float
    seconds_a_round: float  # NaN where not measured


def cost_of(label: str, rounds: int) -> Cost:
    """What this method costs."""
    groups = groups_of(label, CLASSES)
    paper = formula(label, sizes(CLASSES), HELD)
    here = np.mean(floats(groups), axis=0)
    products, by_xla = np.mean(list(step_flops(groups)), axis=0) / 1e9
    return Cost(
        method=label,
        up=paper.up,
        down=paper.down,
        formula=sum(paper),
        sent_here=float(here.sum() - sum(extras(label, CLASSES))),
        gflops_a_step=float(products),
        gflops_by_xla=float(by_xla),
        seconds_a_round=seconds(label, rounds) if rounds else float("nan"),
    )


def seconds(label: str, rounds: int) -> float:
    """Seconds of a round of 20 clients at small scale, without evaluation."""
    experiment = experiment_of(COLUMNS[0], label, small=True)
    with tempfile.TemporaryDirectory() as folder:
        taken = []
        # The first run compiles.
        for name in ("compiled", "timed"):
            out = f"{folder}/{name}"
            job = experiment.replace(rounds=rounds, eval_every=rounds, out=out)
            result = run(job, quiet=True, report=False)
            taken.append(result.environment["seconds"])
    return taken[-1] / rounds


def main(
    rounds: Annotated[int, arg(help="To be timed; 0 for none.")] = 0,
    results: script.Results = None,
) -> None:
    """Writes what each method costs."""
    use_compile_cache()
    rows = [cost_of(label, rounds) for label in (*METHODS, *LATER)]
    lines = [
        f"| {' | '.join(Cost._fields)} |",
        f"|{'---|' * len(Cost._fields)}",
    ]
    for row in rows:
        # A float is a count or a time: as many digits as say something.
        texts = [x if isinstance(x, str) else f"{x:,.4g}" for x in row]
        lines.append(f"| {' | '.join(texts)} |".replace("nan", ""))
    text = "\n".join(lines)
    print(text)
    place = Path(results or RESULTS)
    place.mkdir(parents=True, exist_ok=True)
    (place / "table6.md").write_text(text + "\n", encoding="utf-8")
    with open(place / "table6.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([Cost._fields, *rows])


if __name__ == "__main__":
    script.run(main)
