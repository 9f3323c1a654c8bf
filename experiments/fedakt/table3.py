"""FedAKT, Table 3: five CNNs, 20 clients, pathological and Dir(0.1) (JSA 2025).

    pfljax prepare cifar10; pfljax prepare cifar100
    python experiments/fedakt/table3.py --scale small
    python experiments/fedakt/table3.py --scale paper --columns "cifar10 Dir(0.1)"

The small scale has the two columns of CIFAR-10. `cifar100_20k` is the first 20,000 +
5,000 examples of CIFAR-100, for machines that do not have the whole set. Its margin is
not the paper's. FedTGP and FedGH are not in the paper; they run if `--only` names them.
"""

from protocol import LATER, METHODS, column, main

COLUMNS = [
    column("cifar10", "pathological", 0.84, quick=True),
    column("cifar10", 0.1, 0.64, quick=True),
    column("cifar100", "pathological", 1.47),
    column("cifar100", 0.1, 1.32),
    column("cifar100_20k", "pathological"),
    column("cifar100_20k", 0.1),
    column("tiny_imagenet", "pathological", 0.85),
    column("tiny_imagenet", 0.1, 2.00),
]

if __name__ == "__main__":
    main(__doc__, "table3", COLUMNS, METHODS, LATER)
