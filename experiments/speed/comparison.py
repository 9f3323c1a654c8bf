"""What of a comparison of 20 methods is compiling, and what it takes one by one.

    python experiments/speed/comparison.py --seeds 3

Methods on the digits of the demo, some with other options as well, 100 rounds, without
a cache of compiled programs: by `compare`, which trains the seeds of a method at once
where the cores share them evenly, by a loop over the same runs in one process, and by
one that forgets its programs after each run.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import tyro

from pfljax import Experiment, run
from pfljax.registry import Choice
from pfljax.report import write_comparison
from pfljax.runtime import compiling, devices
from pfljax.runtime.programs import forget_programs
from pfljax.simulate.compare import compare, grid

PLAIN = (
    "fedavg", "local", "apfl", "ditto", "fedprox", "hypcluster", "ifca", "lg_fedavg",
    "l2gd", "per_fedavg", "pfedme", "scaffold", "superfed",
)  # fmt: skip
OPTIONS = (
    ("fedavg", {"finetune": 5}),
    ("superfed", {"mixing": "layer"}),
    ("scaffold", {"option": "I"}),
    ("per_fedavg", {"variant": "first_order"}),
    ("ifca", {"clusters": 3}),
    ("ifca", {"averaging": "gradients"}),
    ("lg_fedavg", {"mean_body": True}),
)
ROUNDS = 100


def experiments() -> list[Experiment]:
    """The methods as they are, and some with options."""
    plain = [Experiment(algorithm=name) for name in PLAIN]
    others = [Experiment(algorithm=Choice(name, hyper)) for name, hyper in OPTIONS]
    return [job.replace(rounds=ROUNDS) for job in (*plain, *others)]


def main(seeds: int = 3) -> None:
    """Prints the seconds of each way, and what of them each phase of compiling takes.

    Args:
      seeds: of each method.
    """
    devices.prepare()
    with tempfile.TemporaryDirectory() as folder, compiling.without_cache():
        _told("compare", lambda: _compared(seeds, f"{folder}/compared"))
        forget_programs()
        _told("one by one", lambda: _one_by_one(seeds, f"{folder}/runs"))
        _told("each anew", lambda: _one_by_one(seeds, f"{folder}/anew", anew=True))


def _compared(seeds: int, out: str) -> None:
    compare(experiments(), range(seeds), out, finetuned=False, quiet=True)


def _one_by_one(seeds: int, out: str, anew: bool = False) -> None:
    runs = grid(experiments(), range(seeds), out, finetuned=False)
    for experiment in runs:
        if anew:
            forget_programs()
        run(experiment, quiet=True)
    write_comparison([Path(experiment.folder) for experiment in runs], Path(out))


def _told(name: str, work: Callable[[], None]) -> None:
    started = time.process_time(), time.monotonic()
    with compiling.watched() as works:
        work()
    whole = time.process_time() - started[0]
    clock = time.monotonic() - started[1]
    seconds = compiling.by_phase(works)
    counts = Counter(each.phase for each in works)
    share = sum(seconds.values()) / whole
    by_clock = sum(each.clock for each in works) / clock
    phases = [f"{phase} {seconds[phase]:.1f} ({counts[phase]})" for phase in seconds]
    print(
        f"{name}: {clock:.0f} s by the clock, of which {by_clock:.0%} are compiling; "
        f"{whole:.0f} CPU s, {share:.0%}: {', '.join(phases)} CPU s (times)"
    )


if __name__ == "__main__":
    tyro.cli(main)
