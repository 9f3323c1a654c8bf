"""Steps per second by the clients of a round, the devices of a CPU, and convolutions.

    python experiments/speed/devices.py

On two cores, two devices train one client each, or the products of one device use both
cores. Each number is the median of three calls of one round in a separate process.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from tempfile import TemporaryDirectory

from experiments.shared import script
from pfljax import bench
from pfljax.bench.catalogue import WORKLOADS

COHORTS = (1, 2, 3, 4, 5)
DEVICES = (2, 1)
CASES = (("W1", "twonn"), ("W2", "twocnn"), ("W2", "twocnn:conv=im2col"))


def steps_per_second(workload: str, model: str, cohort: int) -> float:
    """Of the workload with this model and so many clients a round."""
    changed = WORKLOADS[workload]._replace(model=model, cohort=cohort)
    WORKLOADS[workload] = changed
    with TemporaryDirectory() as folder:
        measured = bench.run([workload], rounds=1, methods=["fedavg"], out=folder)
    (result,) = measured["results"]
    return result["steps_per_second"]["median"]


def measured(workload: str, model: str, cohort: int, devices: int) -> float:
    """The same in a process of its own with so many devices."""
    os.environ["JAX_NUM_CPU_DEVICES"] = str(devices)
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(steps_per_second, workload, model, cohort).result()


def main() -> None:
    """Prints a table in Markdown."""
    columns = ["workload", "model", "devices", *map(str, COHORTS)]
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for workload, model in CASES:
        for devices in DEVICES:
            rates = [measured(workload, model, each, devices) for each in COHORTS]
            cells = [workload, model, str(devices), *(f"{rate:,.0f}" for rate in rates)]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    script.run(main)
