"""FedAKT, Figure 7: 10, 50, 100 and 200 clients of CIFAR-100 (JSA 2025).

    pfljax prepare cifar100_20k --raw FOLDER
    python experiments/fedakt/fig7.py --scale small
    python experiments/fedakt/fig7.py --scale paper --columns "cifar100 Dir(0.1), 50"

The published margins of FedAKT over the best baseline (pathological and Dir(0.1)) are
3.42 and 1.59 with 50 clients, 3.02 and 2.31 with 100, and 2.51 and 3.20 with 200. The
small scale has 10 and 50 clients, on the available part of CIFAR-100.
"""

from protocol import LATER, METHODS, SMALL, Column, column, main

MARGINS = {
    (50, "pathological"): 3.42,
    (50, 0.1): 1.59,
    (100, "pathological"): 3.02,
    (100, 0.1): 2.31,
    (200, "pathological"): 2.51,
    (200, 0.1): 3.20,
}


def of_clients(dataset: str, clients: int, skew: str | float) -> Column:
    """The problem with so many clients."""
    margin = MARGINS.get((clients, skew)) if dataset == "cifar100" else None
    made = column(dataset, skew, margin, clients=clients, cohort=clients)
    every = 5 if clients <= 10 else 1
    return made._replace(
        name=f"{made.name}, {clients}",
        small={**SMALL, "dataset": f"{dataset}:every={every}"},
        quick=dataset == "cifar100_20k" and clients <= 50,
    )


COLUMNS = [
    of_clients(dataset, clients, skew)
    for dataset in ("cifar100", "cifar100_20k")
    for clients in (10, 50, 100, 200)
    for skew in ("pathological", 0.1)
]

if __name__ == "__main__":
    main(__doc__, "fig7", COLUMNS, METHODS, LATER)
