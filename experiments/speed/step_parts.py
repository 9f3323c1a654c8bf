"""What a local step waits for: microseconds by kind of kernel, in a compiled round.

    taskset -c 0 python experiments/speed/step_parts.py --workload W1 --algorithm fedavg

Of `jax.profiler`, which makes short steps a fifth longer; the last number is of a round
that is not profiled. On one core, for kernels of several devices would overlap. Kernels
that take less than a microsecond are told apart, whatever they are.
"""

import tempfile
import time
from collections import Counter
from pathlib import Path

import jax
import numpy as np

from experiments.shared import script
from pfljax.bench import hlo, measure, workloads
from pfljax.runtime import devices

SMALL = 1000  # ns


def part_of(name: str, kind: str) -> str:
    """What a kernel of this name and kind counts as."""
    if kind in hlo.PRODUCTS:
        return "products"
    if "copy" in name or "transpose" in name:
        return "copies, transpositions"
    return "passes over arrays"


def profiled(run, folder: str) -> tuple[Counter[str], Counter[str]]:
    """Nanoseconds and calls of each kernel in a call of `run`."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(folder, profiler_options=options):
        jax.block_until_ready(run())
    (file,) = Path(folder).rglob("*.xplane.pb")
    profile = jax.profiler.ProfileData.from_file(str(file))
    spent: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for plane in profile.planes:
        for event in (event for line in plane.lines for event in line.events):
            spent[event.name] += event.duration_ns
            calls[event.name] += 1
    return spent, calls


def main(workload: str = "W1", algorithm: str = "fedavg") -> None:
    """Prints the microseconds of a step by kind."""
    devices.prepare()
    ready = workloads.build(workload, algorithm)
    key = jax.random.key(workloads.SEED)
    program = measure.compile_program(ready, ready.init(key), 1)
    kinds = hlo.kernels_by_name(program.run.as_text())

    def a_round():
        # The round takes the memory of the state: each has one of its own.
        state = jax.block_until_ready(ready.init(key))
        return lambda: program.run(state, ready.train, np.int32(1))

    jax.block_until_ready(a_round()())
    with tempfile.TemporaryDirectory() as folder:
        spent, calls = profiled(a_round(), folder)
    run = a_round()
    start = time.perf_counter()
    jax.block_until_ready(run())
    whole = time.perf_counter() - start
    steps = measure.steps(ready, key, 0, 1).sum()
    parts: Counter[str] = Counter()
    for name, ns in spent.items():
        if name in kinds and kinds[name] != "conditional":
            small = ns / calls[name] < SMALL
            part = "kernels under 1 us" if small else part_of(name, kinds[name])
            parts[part] += ns / steps / 1000
    for part, microseconds in parts.most_common():
        print(f"{part}: {microseconds:,.1f} us a step")
    print(f"a step that is not profiled: {1e6 * whole / steps:,.1f} us")


if __name__ == "__main__":
    script.run(main)
