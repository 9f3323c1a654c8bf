"""pFedVEM under label skew and different sizes: Fashion-MNIST, CIFAR-10 (CVPR 2023).

    pfljax prepare fashion_mnist; pfljax prepare cifar10
    python experiments/pfedvem_cvpr23/table1.py --scale small
    python experiments/pfedvem_cvpr23/table1.py --scale paper

50, 100 or 200 clients have half of the classes each, and random numbers of their
examples. "pFedVEM by rows" weights the heads by examples instead of confidences.
"""

from collections.abc import Sequence
from functools import partial

from vem import (
    CIFAR10,
    CLIENTS,
    FASHION,
    METHODS,
    RESULTS,
    UNVERIFIED,
    best_round,
    experiment_of,
    skewed,
)

WEIGHED = ("pFedVEM", "pFedVEM by rows")


def cells(small: bool, rounds: int | None) -> list[best_round.Cell]:
    """What is to run: each method on both data sets, by the number of clients."""
    made = []
    for problem in (FASHION, CIFAR10):
        for clients in CLIENTS:
            column = f"{problem.dataset}, {clients} clients"
            federation = partial(skewed, problem, clients, small)
            for label in METHODS:
                experiment = experiment_of(problem, label, clients, small)
                if rounds:
                    experiment = experiment.replace(rounds=rounds)
                made.append(best_round.Cell(column, label, experiment, federation))
    return made


def note(column: str, rows: Sequence[best_round.Row]) -> str:
    """The gain of weights by confidence, and the numbers that an index publishes."""
    last = {row.method: row.final_acc_mean for row in rows if row.column == column}
    texts = []
    if set(WEIGHED) <= set(last):
        confident, by_rows = (last[method] for method in WEIGHED)
        texts.append(
            "Gain of weights by confidence over weights by examples in the last round: "
            f"{confident - by_rows:+.2f} points."
        )
    known = UNVERIFIED[column.partition(",")[0]]
    numbers = ", ".join(f"{method} {number}" for method, number in known.items())
    texts.append(f"Published (unverified, number of clients unknown): {numbers}.")
    return " ".join(texts)


if __name__ == "__main__":
    best_round.command(__doc__, "pfedvem_table1", cells, note, RESULTS)
