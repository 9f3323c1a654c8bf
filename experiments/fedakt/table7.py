"""FedAKT, Table 7: the ablation of its two mechanisms, 20 clients (JSA 2025).

    python experiments/fedakt/table7.py --scale small

FMD is the distance of the two features, and HDU the second cross-entropy of the head.
The published gains over Standalone with CIFAR-10 are 1.24 (full), 0.80 (FMD only) and
0.28 (HDU only), and with CIFAR-100 they are 5.04, 3.28 and 0.51. The first and the last
case are runs of Table 3.
"""

from collections.abc import Sequence

from protocol import ABLATION, Column, Row, Table, best_round, column, main

COLUMNS = [
    column("cifar10", "pathological", quick=True),
    column("cifar100", "pathological"),
    column("cifar100_20k", "pathological"),
]
GAINS = {
    "cifar10 pathological": {"FedAKT": 1.24, "FMD only": 0.80, "HDU only": 0.28},
    "cifar100 pathological": {"FedAKT": 5.04, "FMD only": 3.28, "HDU only": 0.51},
}


def gains(problem: Column, rows: Sequence[Row]) -> str:
    """What each case gains over Standalone in the best round, published beside."""
    texts = []
    measured = best_round.gains(rows, problem.name, "Standalone")
    for method, gain in measured.items():
        theirs = GAINS.get(problem.name, {}).get(method)
        beside = "not published" if theirs is None else f"published {theirs:+.2f}"
        texts.append(f"{method} {gain:+.2f} ({beside})")
    if not texts:
        return ""
    return f"Gains over Standalone: {', '.join(texts)}"


if __name__ == "__main__":
    main(__doc__, Table("table7", note=gains), COLUMNS, ABLATION)
