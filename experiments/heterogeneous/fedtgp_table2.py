"""FedTGP, Table 2: several numbers of architectures and of clients (AAAI 2024).

    pfljax prepare cifar100; pfljax prepare cifar100_20k --raw FOLDER
    python experiments/heterogeneous/fedtgp_table2.py --scale small
    python experiments/heterogeneous/fedtgp_table2.py --scale paper

The data are CIFAR-100 at Dir(0.1). The groups are HtFE2, 3, 4 and 9, and HtFE8 with 50
and 100 clients, half of which take part. The two columns of heterogeneous heads are
left out, because the groups do not have these heads. The small scale has narrow CNNs
instead of all groups, on the available part of CIFAR-100, so its columns differ only in
the number of clients.
"""

from typing import Any

from tgp import ROUNDS, ROWS, SMALL, Column, column, main, published, table_of

ALPHA = 0.1


def of_group(group: str, clients: int = 20, cohort: int = 20) -> Column:
    """A column by this group of models."""
    settings: dict[str, Any] = {"clients": clients, "cohort": cohort, "rounds": ROUNDS}
    made = column("cifar100", ALPHA, group=group, **settings)
    # 2,500 rows, and all of them where clients are many.
    every = 10 if clients == 20 else 2
    return made._replace(
        name=f"{made.name}, {group}, {clients} clients",
        small={**SMALL, "dataset": f"cifar100_20k:every={every}"},
        quick=group == "htfe8",
    )


KINDS = {
    "HtFE2": of_group("htfe2"),
    "HtFE3": of_group("htfe3"),
    "HtFE4": of_group("htfe4"),
    "HtFE9": of_group("htfe9"),
    "HtFE8 50 clients rho .5": of_group("htfe8", 50, 25),
    "HtFE8 100 clients rho .5": of_group("htfe8", 100, 50),
}
COLUMNS = list(KINDS.values())
NUMBERS = {
    made.name: published(2, "dirichlet_0.1", "cifar100", models)
    for models, made in KINDS.items()
}

if __name__ == "__main__":
    main(__doc__, table_of("fedtgp_table2", NUMBERS), COLUMNS, ROWS)
