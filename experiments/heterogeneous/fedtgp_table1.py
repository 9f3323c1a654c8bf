"""FedTGP, Table 1: eight architectures, pathological and Dir(0.1) (AAAI 2024).

    pfljax prepare cifar10; pfljax prepare cifar100
    python experiments/heterogeneous/fedtgp_table1.py --scale small
    python experiments/heterogeneous/fedtgp_table1.py --scale paper

Flowers102 is left out because there is no loader for it. At small scale the two columns
of CIFAR-10 are the runs of FedAKT's Table 3.
"""

from tgp import ROUNDS, ROWS, Column, column, main, published, table_of

SKEWS = {"pathological": "pathological", 0.1: "dirichlet_0.1"}


def of_table(dataset: str, skew: str | float) -> Column:
    """A column by HtFE8."""
    quick = dataset == "cifar10"
    return column(dataset, skew, group="htfe8", quick=quick, rounds=ROUNDS)


DATASETS = ("cifar10", "cifar100", "tiny_imagenet")
KINDS = [(dataset, skew) for dataset in DATASETS for skew in SKEWS]
COLUMNS = [of_table(dataset, skew) for dataset, skew in KINDS]
NUMBERS = {
    made.name: published(1, SKEWS[skew], dataset, "HtFE8")
    for made, (dataset, skew) in zip(COLUMNS, KINDS, strict=True)
}

if __name__ == "__main__":
    main(__doc__, table_of("fedtgp_table1", NUMBERS), COLUMNS, ROWS)
