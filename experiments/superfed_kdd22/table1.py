"""SuPerFed, Table 1: two classes for each client, top-1 accuracy (KDD 2022).

    pfljax prepare mnist; pfljax prepare cifar10
    python experiments/superfed_kdd22/table1.py --scale small
    python experiments/superfed_kdd22/table1.py --scale paper --columns MNIST-K100

With MNIST, Kendall's tau is 0.82, 0.89 and 0.78 with 50, 100 and 500 clients, and
personal models are within half a point of the published numbers (see `REPORT.md`). On
one of two busy cores, a run of 500 rounds took 12 (SCAFFOLD) to 54 min (APFL) with 50
clients, 6 (FedRep) to 20 min (APFL, SuPerFed) with 100, and 2 min (FedAvg) with 500.
Ten rounds of CIFAR-10 with 100 clients took 5 to 28 min for each method. CIFAR-10's
published pFedMe is APFL, so it has no rank.
"""

from protocol import CIFAR10, MNIST, Column, main

START = {  # of mixing, as a share of the rounds, in the official commands
    50: {"SuPerFed-MM": {"start": 0.6}, "SuPerFed-LM": {"start": 0.8}},
    100: {"SuPerFed-MM": {"start": 0.4}, "SuPerFed-LM": {"start": 0.6}},
    500: {"SuPerFed-MM": {"start": 0.2}, "SuPerFed-LM": {"start": 0.4}},
}
ROUNDS = {"MNIST": 10, "CIFAR10": 2}  # of the small scale, and its rows, by clients:
EVERY = {50: ["every=10"], 100: ["every=5"], 500: []}  # about 120 a client of MNIST


def rows(dataset: str, clients: int) -> str:
    """The data set of the small scale."""
    name, *options = dataset.split(":")
    return ":".join(filter(None, [name, ",".join([*options, *EVERY[clients]])]))


COLUMNS = [
    Column(
        f"{name}-K{clients}",
        {"table": "T1", "dataset": name, "n_clients": str(clients)},
        protocol.replace(clients=clients),
        {"rounds": ROUNDS[name], "dataset": rows(str(protocol.dataset), clients)},
        START[clients],
        misnamed=["pFedMe"] if name == "CIFAR10" else [],
        quick=name == "MNIST",
    )
    for name, protocol in (("MNIST", MNIST), ("CIFAR10", CIFAR10))
    for clients in (50, 100, 500)
]

if __name__ == "__main__":
    main(__doc__, "runs/superfed-table1", COLUMNS)
