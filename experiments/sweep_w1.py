"""Runs per hour of workload W1 where 1, 8 and 32 runs are one compiled program.

    python experiments/sweep_w1.py

W1 is the TwoNN 784-200-200-10, 100 clients with 480 rows each, a cohort of 10, 5 epochs
of batches of 10: 2400 local steps a round. Learning rates differ by run, the data are
the same. A run here has 100 rounds: measured are calls of 1 round, made ready and
evaluated once on 500 central rows, the best of three, and the time is scaled to 100.
Compiling is apart.

"""

import sys
import time

import numpy as np

from pfljax import Experiment, data
from pfljax.bench.workloads import WORKLOADS
from pfljax.data import Federation
from pfljax.sweep import sweep

ROUNDS, REPEATS = 100, 3
W1 = WORKLOADS["W1"]


def make_federation() -> Federation:
    """W1's clients, with random rows, and 500 central rows to test on."""
    rng, count = np.random.default_rng(0), W1.clients * (W1.rows or 0)
    x = rng.standard_normal((count + 500, *W1.shape), np.float32)
    y = rng.integers(0, W1.num_classes, len(x))
    arrays = data.from_arrays(x, y, official=np.arange(len(x)) >= count)
    own = np.arange(count).reshape(W1.clients, -1)
    return data.federate(
        arrays,
        data.from_rows(list(own)),
        num_clients=W1.clients,
        seed=0,
        validation=0.0,
        test_from="official",
    )


def measure(federation: Federation, runs: int) -> tuple[float, float]:
    """(runs of 100 rounds in an hour, seconds of the first call)."""
    experiment = Experiment(
        model=W1.model,
        cohort=W1.cohort,
        rounds=1,
        epochs=W1.epochs,
        batch_size=W1.batch_size,
    )
    seconds = []
    for repeat in range(REPEATS + 1):
        rates = W1.learning_rate * (1 + (np.arange(runs) + repeat) / 100)
        start = time.perf_counter()
        sweep(experiment, lr=rates, federation=federation)
        seconds.append(time.perf_counter() - start)
    return 3600 * runs / (ROUNDS * min(seconds[1:])), seconds[0]


if __name__ == "__main__":
    federation = make_federation()
    for runs in map(int, sys.argv[1:] or (1, 8, 32)):
        rate, first = measure(federation, runs)
        print(f"{runs:2} runs: {rate:6.1f} an hour; first call {first:.1f} s")
