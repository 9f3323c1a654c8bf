"""How often `compare` finds a difference where there is none, and where there is one.

    python experiments/significance/evidence.py     # two CPU minutes

Each method runs twice on each of 24 partitions of the digits. The two runs differ by
chance alone, so each difference that a test finds is a false positive. Pairs of
different methods show the power of the test. Draws of one, two and three partitions
stand for seeds. `REPORT.md` has the numbers that this script prints.
"""

import itertools
import sys
from pathlib import Path

import numpy as np
from scipy import stats

from pfljax import Experiment, federate, from_arrays
from pfljax.data import load
from pfljax.evaluation.significance import LEVEL, Pair, estimate
from pfljax.sweep import sweep

sys.path.append(str(Path(__file__).resolve().parents[1]))
from shared import script

METHODS = ("local", "fedavg", "fedper", "ditto:lam=0.5")
RUNS = 2  # of a method on each partition
DRAWS = 1000


def main(
    clients: tuple[int, ...] = (20, 100),
    partitions: script.Positive = 24,
    rounds: script.Positive = 20,
    out: str = "runs/significance",
) -> None:
    """Runs what is missing, and prints how often each test finds a difference."""
    for count in clients:
        folder = Path(out) / f"c{count}"
        accuracies = {
            method: run(method, count, partitions, rounds, folder) for method in METHODS
        }
        for seeds in (1, 2, 3):
            print_false_positives(accuracies, count, seeds)
        for seeds in (1, 2, 3):
            print_power(accuracies, count, seeds)


def run(
    method: str, clients: int, partitions: int, rounds: int, out: Path
) -> np.ndarray:
    """Returns the accuracy of each client, f64[partition, run, client]."""
    digits = load("digits")
    examples = from_arrays(digits.x, digits.y, name="mine", scale=16.0)

    def federation(seed):
        return federate(
            examples,
            "dirichlet:alpha=0.5",
            num_clients=clients,
            seed=seed // RUNS,
        )

    experiment = Experiment(
        method, dataset="mine", rounds=rounds, eval_every=rounds, cohort=clients // 4
    )
    seeds = list(range(RUNS * partitions))
    folder = out / method.partition(":")[0]
    done = sweep(experiment, {"seed": seeds}, out=folder, federation=federation)
    accuracy = [r.clients["personal/test/accuracy"][-1] for r in done.results]
    return np.stack(accuracy).astype(float).reshape(partitions, RUNS, clients)


def t_over_seeds(difference: np.ndarray) -> float:
    """Returns the two-sided p of Student's t, over seeds, of f64[seed, client].

    It is NaN for one seed.
    """
    if len(difference) == 1:
        return float("nan")
    return float(stats.ttest_1samp(np.nanmean(difference, axis=1), 0).pvalue)


def moderated(difference: np.ndarray) -> float:
    """Returns the p that `compare` gives to differences f64[seed, client]."""
    clients = tuple(values[~np.isnan(values)] for values in difference)
    means = np.array([values.mean() for values in clients])
    return estimate([Pair(means, clients)])[0].p


TESTS = (t_over_seeds, moderated)


def found(difference: np.ndarray, seeds: int, is_random: bool) -> list[float]:
    """Returns the share of draws in which each test finds a difference.

    The differences are f64[partition, client].
    """
    generator = np.random.default_rng(0)
    counts = np.zeros(len(TESTS))
    for _ in range(DRAWS):
        drawn = difference[generator.choice(len(difference), seeds, replace=False)]
        if is_random:  # either of two equal runs may stand for the first
            drawn = drawn * generator.choice([-1, 1], size=(seeds, 1))
        counts += [test(drawn) < LEVEL for test in TESTS]
    return (counts / DRAWS).tolist()


def print_false_positives(
    accuracies: dict[str, np.ndarray], clients: int, seeds: int
) -> None:
    """Prints how often each test finds a difference of a method from itself."""
    rates = {
        name: found(a[:, 0] - a[:, 1], seeds, True) for name, a in accuracies.items()
    }
    for name, (student, shrunk) in rates.items():
        print(f"{clients} clients, {seeds} seeds, {name} against itself: "
              f"t {student:.3f}, moderated t {shrunk:.3f}")  # fmt: skip
    student, shrunk = np.max(list(rates.values()), axis=0)
    print(f"  highest: t {student:.3f}, moderated t {shrunk:.3f}")


def print_power(accuracies: dict[str, np.ndarray], clients: int, seeds: int) -> None:
    """Prints how often each test finds the difference of two methods."""
    for a, b in itertools.combinations(accuracies, 2):
        difference = accuracies[a][:, 0] - accuracies[b][:, 0]
        student, shrunk = found(difference, seeds, False)
        points = 100 * np.nanmean(difference)
        print(f"{clients} clients, {seeds} seeds, {a} less {b}, {points:.1f} points: "
              f"t {student:.2f}, moderated t {shrunk:.2f}")  # fmt: skip


if __name__ == "__main__":
    script.run(main)
