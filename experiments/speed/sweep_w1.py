"""Runs per hour of workload W1 if 1, 8 and 32 runs are one compiled program.

    python experiments/speed/sweep_w1.py

W1 is the TwoNN 784-200-200-10 with 100 clients of 480 examples each, a cohort of 10,
and 5 epochs of batches of 10: 2400 local steps in a round. Runs differ in their
learning rate. The script times a call of 1 round with everything around it (the layout
of the data, one evaluation on 500 central examples), as the best of three calls after
the first, which compiles, and scales it to 100 rounds.

On one core (taskset) of a shared, loaded machine of two cores, by the clock and by the
processor time of the process, an hour had 48 and 51 runs with 1 run in a program, 58
and 63 with 8, and 54 and 56 with 32. Other tries gave 10 to 101 by the clock, depending
on the load. On a CPU a sweep saves compilations and copies of the data, not steps,
because runs train one after another.
"""

import time

import numpy as np

from experiments.shared import script
from pfljax import Experiment, data
from pfljax.bench.catalogue import WORKLOADS
from pfljax.data import Federation
from pfljax.sweep import sweep

ROUNDS = 100
REPEATS = 3
W1 = WORKLOADS["W1"]


def make_federation() -> Federation:
    """W1's clients, with random rows, and 500 central rows to test on."""
    rng = np.random.default_rng(0)
    count = W1.clients * (W1.examples or 0)
    x = rng.standard_normal((count + 500, *W1.shape), np.float32)
    y = rng.integers(0, W1.num_classes, len(x))
    arrays = data.from_arrays(x, y, official=np.arange(len(x)) >= count)
    # The first rows are the clients', in equal parts; the others are central.
    by_client = np.arange(count).reshape(W1.clients, -1)
    return data.federate(
        arrays,
        data.from_indices(list(by_client)),
        num_clients=W1.clients,
        seed=0,
        validation=0.0,
        test_from="official",
    )


def measure(federation: Federation, runs: int) -> tuple[float, float, float]:
    """Runs of 100 rounds in an hour, by the clock and of one core's own time.

    And the seconds of the first call, which compiles.
    """
    experiment = Experiment(
        model=W1.model,
        cohort=W1.cohort,
        rounds=1,
        epochs=W1.epochs,
        batch_size=W1.batch_size,
    )
    clock = []
    core = []
    for repeat in range(REPEATS + 1):
        rates = W1.learning_rate * (1 + (np.arange(runs) + repeat) / 100)
        clock_start = time.perf_counter()
        core_start = time.process_time()
        sweep(experiment, {"lr": rates}, federation=federation, lanes=runs)
        clock.append(time.perf_counter() - clock_start)
        core.append(time.process_time() - core_start)
    scale = 3600 * runs / ROUNDS
    return scale / min(clock[1:]), scale / min(core[1:]), clock[0]


def main(sizes: tuple[int, ...] = (1, 8, 32)) -> None:
    """Prints runs per hour when so many runs are one compiled program."""
    federation = make_federation()
    for runs in sizes:
        clock, core, first = measure(federation, runs)
        rates = f"{clock:5.1f} an hour, {core:5.1f} of a core's own time"
        print(f"{runs:2} runs: {rates}; first call {first:.1f} s", flush=True)


if __name__ == "__main__":
    script.run(main)
