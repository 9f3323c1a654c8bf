"""FedAKT, Figure 8: five local epochs instead of one, 20 clients (JSA 2025).

    python experiments/fedakt/fig8.py --scale small

We could not read the paper's numbers.
"""

from protocol import LATER, METHODS, Column, column, main


def of_five_epochs(dataset: str, skew: str | float, quick: bool) -> Column:
    """The problem at E = 5."""
    made = column(dataset, skew, quick=quick, epochs=5)
    return made._replace(name=f"{made.name}, E=5")


COLUMNS = [
    of_five_epochs(dataset, skew, dataset == "cifar10")
    for dataset in ("cifar10", "cifar100", "cifar100_20k")
    for skew in ("pathological", 0.1)
]

if __name__ == "__main__":
    main(__doc__, "fig8", COLUMNS, METHODS, LATER)
