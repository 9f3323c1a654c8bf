"""What a local step waits for: microseconds by kind of kernel, in a compiled round.

    taskset -c 0 python experiments/speed/step_parts.py W1 fedavg

Of `jax.profiler`, which makes short steps a fifth longer; the last number is of a round
that is not profiled. On one core, for kernels of several devices would overlap. Kernels
that take less than a microsecond are told apart, whatever they are.
"""

import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import jax
import numpy as np

from pfljax.bench import measure, workloads
from pfljax.runtime import devices

HEADER = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = .*?\s([a-z][a-z0-9\-]*)\(")
CALLED = re.compile(r"calls=%?([\w.\-]+)")
PRODUCTS = (" dot(", " convolution(")
OUTER = ("while", "call", "conditional")  # their time is that of what they hold
SMALL = 1000  # ns


def kinds(program: str) -> dict[str, str]:
    """The kind of each instruction of a compiled program, by its name.

    A line such as "%add.3 = f32[10]{0} fusion(%x), kind=kLoop, calls=%fused.1" is of
    the kind of what the computation that it calls holds.
    """
    bodies: dict[str, str] = {}
    name = ""
    for line in program.splitlines():
        if header := HEADER.match(line):
            name = header[1]
        bodies[name] = bodies.get(name, "") + line + "\n"
    found = {}
    for line in program.splitlines():
        if (instruction := INSTRUCTION.match(line)) and instruction[2] not in OUTER:
            called = CALLED.search(line)
            body = line + (bodies.get(called[1], "") if called else "")
            found[instruction[1]] = _kind(instruction[1], body)
    return found


def _kind(name: str, body: str) -> str:
    if any(product in body for product in PRODUCTS):
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


def main(name: str, method: str) -> None:
    """Prints the microseconds of a step by kind."""
    devices.prepare()
    ready = workloads.build(name, method)
    key = jax.random.key(workloads.SEED)
    program = measure.compile_program(ready, ready.init(key), 1)
    kind_of = kinds(program.run.as_text())

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
    by_kind: Counter[str] = Counter()
    for kernel, ns in spent.items():
        if kernel in kind_of:
            small = ns / calls[kernel] < SMALL
            kind = "kernels under 1 us" if small else kind_of[kernel]
            by_kind[kind] += ns / steps / 1000
    for kind, microseconds in by_kind.most_common():
        print(f"{kind}: {microseconds:,.1f} us a step")
    print(f"a step that is not profiled: {1e6 * whole / steps:,.1f} us")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("expected a workload and a method, such as W1 fedavg")
    main(*sys.argv[1:])
