"""FedAKT, Table 4: Table 3 at Dir(0.5) (JSA 2025).

    python experiments/fedakt/table4.py --scale small

We could not read the paper's numbers. Its text says that all methods are slightly lower
than at Dir(0.1).
"""

from protocol import LATER, METHODS, column, main

COLUMNS = [
    column("cifar10", 0.5, quick=True),
    column("cifar100", 0.5),
    column("cifar100_20k", 0.5),
    column("tiny_imagenet", 0.5),
]

if __name__ == "__main__":
    main(__doc__, "table4", COLUMNS, METHODS, LATER)
