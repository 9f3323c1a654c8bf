"""pFedVEM under concept drift: the superclasses of CIFAR-100 (CVPR 2023).

    pfljax prepare cifar100_20k --raw FOLDER
    python experiments/pfedvem_cvpr23/table2.py --scale small
    python experiments/pfedvem_cvpr23/table2.py --scale paper

50, 100 or 200 clients have the 20 superclasses as labels. Of each superclass a client
has one of the five subclasses. The paper's numbers are not known.
"""

from collections.abc import Sequence
from functools import partial

from vem import CIFAR100, CLIENTS, METHODS, RESULTS, best_round, drifted, experiment_of


def cells(small: bool, rounds: int | None) -> list[best_round.Cell]:
    """What is to run: each method by the number of clients."""
    made = []
    for clients in CLIENTS:
        federation = partial(drifted, CIFAR100, clients, small)
        for label in METHODS:
            experiment = experiment_of(CIFAR100, label, clients, small)
            if rounds:
                experiment = experiment.replace(rounds=rounds)
            column = f"{clients} clients"
            made.append(best_round.Cell(column, label, experiment, federation))
    return made


def note(column: str, rows: Sequence[best_round.Row]) -> str:
    """The gain of the method over FedAvg."""
    gains = best_round.gains(rows, column, "FedAvg")
    if "pFedVEM" not in gains:
        return ""
    return f"Gain of pFedVEM over FedAvg: {gains['pFedVEM']:+.2f} points."


if __name__ == "__main__":
    best_round.command(__doc__, "pfedvem_table2", cells, note, RESULTS)
