"""What of a comparison is tracing, lowering and compiling: 20 methods, three seeds.

    python experiments/speed/comparison.py

All methods on the digits of the demo, some with other options as well, 100 rounds,
without a cache of compiled programs. CPU seconds of all cores on a shared, loaded
machine of two: 123 of 288, 43 %. Before methods shared programs and each compiled once
for all seeds, 126 of 170 were it for 13 methods under a single seed, and each further
seed compiled as much again.
"""

import tempfile
import time
from collections import Counter
from pathlib import Path

import jax

from pfljax import Experiment, algorithms
from pfljax.registry import Choice
from pfljax.runtime import compiling, devices
from pfljax.simulate.compare import compare

OPTIONS = (
    ("fedavg", {"finetune": 5}),
    ("superfed", {"mixing": "layer"}),
    ("scaffold", {"option": "I"}),
    ("per_fedavg", {"variant": "first_order"}),
    ("ifca", {"clusters": 3}),
    ("ifca", {"averaging": "gradients"}),
    ("lg_fedavg", {"mean_body": True}),
)
SEEDS = (0, 1, 2)
ROUNDS = 100


def experiments() -> list[Experiment]:
    """Every method as it is, and some with options."""
    plain = [Experiment(algorithm=name) for name in algorithms.methods()]
    others = [Experiment(algorithm=Choice(name, hyper)) for name, hyper in OPTIONS]
    return [job.replace(rounds=ROUNDS) for job in (*plain, *others)]


def main() -> None:
    """Prints the share, and the seconds and programs of each phase."""
    devices.prepare()
    jax.config.update("jax_enable_compilation_cache", False)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder, compiling.watched() as works:
        compare(experiments(), SEEDS, str(Path(folder) / "out"), quiet=True)
    whole = time.process_time() - started
    seconds = compiling.by_phase(works)
    counts = Counter(work.phase for work in works)
    share = sum(seconds.values()) / whole
    print(f"{sum(seconds.values()):.0f} of {whole:.0f} CPU s, {share:.0%}")
    for phase, taken in seconds.items():
        print(f"{phase}: {taken:.1f} s, {counts[phase]} times")


if __name__ == "__main__":
    main()
