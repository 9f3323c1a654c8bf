"""Runs per hour of the 32 runs of `notebooks/ablations.ipynb`: a sweep, or one by one.

    python experiments/speed/ablation.py

The runs are Ditto on the digits with 4 values of lam, 8 seeds and 30 rounds. One by one
means `pfljax.run` of each in this process, without reports, so that seeds share
compiled programs. A sweep compiles one program for all. Each is timed cold, with its
compilation, and warm.

The machine has two shared cores under load. By processor time and by the clock, it
makes these numbers of runs per hour: one by one 3,147 and 1,417 cold, 11,123 and 4,893
warm; as a sweep 10,586 and 5,605 cold, 46,644 and 22,366 warm.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax

from experiments.shared import script
from pfljax import Experiment, run
from pfljax.runtime import devices
from pfljax.sweep import sweep

LAMS = (0.0, 0.1, 1.0, 4.0)
SEEDS = range(8)
BASE = Experiment(
    "ditto",
    partition="dirichlet_over_classes_at_once:alpha=0.3",
    rounds=30,
    eval_every=30,
    epochs=2,
)


def one_by_one(folder: Path) -> None:
    """Every run by itself, all seeds of a value after one another."""
    for lam in LAMS:
        for seed in SEEDS:
            out = str(folder / f"{lam}-{seed}")
            job = BASE.replace(algorithm=f"ditto:lam={lam}", seed=seed, out=out)
            run(job, quiet=True, report=False)


def swept(folder: Path) -> None:
    """All runs as one sweep."""
    sweep(BASE, {"lam": list(LAMS), "seed": list(SEEDS)}, out=folder / "sweep")


def timed(runs: Callable[[Path], None]) -> tuple[float, float]:
    """Seconds by the clock, and of all cores."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        cpu = time.process_time()
        runs(Path(folder))
        return time.perf_counter() - started, time.process_time() - cpu


def main() -> None:
    """Prints runs an hour by the clock and by processor time, cold and warm."""
    devices.prepare()
    jax.config.update("jax_enable_compilation_cache", False)
    count = len(LAMS) * len(SEEDS)
    for name, runs in (("one by one", one_by_one), ("sweep", swept)):
        for state in ("cold", "warm"):
            clock, cpu = timed(runs)
            print(
                f"{name}, {state}: {clock:.1f} s, {cpu:.1f} CPU s; "
                f"{3600 * count / clock:.0f} runs an hour, "
                f"{3600 * count / cpu:.0f} an hour of processor time",
                flush=True,
            )


if __name__ == "__main__":
    script.run(main)
