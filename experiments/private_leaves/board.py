"""The order of ten methods on Fashion-MNIST, beside PFLlib's published board.

    pfljax prepare fashion_mnist
    python experiments/private_leaves/board.py      # 60 runs; minutes on two cores

PFLlib trains its CNN on all 70,000 images. Here a perceptron trains on each twentieth.
Published are accuracies on Fashion-MNIST at Dirichlet 0.1, and at 5 those on CIFAR-100:
https://www.pfllib.com/benchmark.html. `REPORT.md` has what this script prints.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from pfljax import Experiment
from pfljax.sweep import sweep

sys.path.append(str(Path(__file__).resolve().parents[1]))
from shared import script

PUBLISHED = {  # (Fashion-MNIST at 0.1, CIFAR-100 at 5)
    "feddbe": (97.69, 41.12),
    "gpfl": (97.81, 30.86),
    "fedcp": (97.89, 26.83),
    "fedala": (97.66, 34.27),
    "fedbabu": (97.46, 27.61),
    "fedrod": (97.52, 25.63),
    "fedrep": (97.56, 14.93),
    "fedper": (97.44, 16.09),
    "ditto": (97.47, 35.72),
    "fedavg": (85.85, 35.51),
}
PARTITIONS = ("dirichlet:alpha=0.1", "dirichlet:alpha=5.0")


def main(rounds: script.Positive = 50, out: str = "runs/board") -> None:
    """Runs what is missing, and prints accuracies and Kendall's tau of the orders."""
    experiment = Experiment(
        dataset="fashion_mnist:every=20",
        model="mlp:hidden=(64,)",
        clients=20,
        cohort=20,
        batch_size=10,
        epochs=1,
        lr=0.05,
        rounds=rounds,
        eval_every=rounds,
    )
    over = {"algorithm": PUBLISHED, "partition": PARTITIONS, "seed": (0, 1, 2)}
    over = {name: tuple(values) for name, values in over.items()}
    found = sweep(experiment, over, out=out, quiet=False)
    for number, partition in enumerate(PARTITIONS):
        measured = {
            method: accuracies(found, method, partition) for method in PUBLISHED
        }
        print(partition)
        for method, values in measured.items():
            mean, std = 100 * np.mean(values), 100 * np.std(values, ddof=1)
            published = PUBLISHED[method][number]
            print(f"{method:8} {mean:.2f} ± {std:.2f}, published {published:.2f}")
        published = [values[number] for values in PUBLISHED.values()]
        tau, p = kendalltau(published, [np.mean(each) for each in measured.values()])
        print(f"Kendall's tau of the two orders: {tau:.2f} (p = {p:.2f})")


def accuracies(found, method: str, partition: str) -> list[float]:
    """The accuracies of a method by seed, means over clients."""
    return [
        result.personal.test.accuracy
        for values, result in zip(found.values, found.results, strict=True)
        if str(values["algorithm"]) == method and str(values["partition"]) == partition
    ]


if __name__ == "__main__":
    script.run(main)
