"""Steps per second of W1 to W11 on a GPU, timed in turn with PyTorch.

    pip install . torch
    XLA_PYTHON_CLIENT_PREALLOCATE=false python -m experiments.speed.gpu

The peer is `torch_gpu.py`, as a loop and, for FedAvg, under `torch.func.vmap`. Both
processes keep their arrays on the GPU, but only one works at a time. The peer trains
the same cohorts as the first of ours. `--no-peer` leaves the peer out. `--trace` prints
the GPU time of a round of each workload by kernel.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import jax

from experiments.shared import script
from experiments.shared.script import Positive
from pfljax.bench import measure, workloads
from pfljax.bench.catalogue import WORKLOADS
from pfljax.runs import folder
from pfljax.runtime import devices, files

# Rounds of a call, of pfljax and of the peer, whose rounds take much longer: each call
# some tenths of a second at least.
ROUNDS = {
    "W1": (40, 1), "W2": (20, 1), "W3": (20, 2), "W4": (10, 5), "W5": (20, 1),
    "W6": (20, 2), "W7": (20, 1), "W8": (4, 1), "W9": (2, 1), "W10": (10, 5),
    "W11": (20, 10),
}  # fmt: skip
FORMS = ("loop", "vmap")


class Peer:
    """The process of `torch_gpu.py`."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("torch_gpu.py"))]
        self._process = subprocess.Popen(
            command,
            env=devices.clean_environment() | {"JAX_PLATFORMS": "cpu"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def ask(self, **asked: Any) -> dict[str, Any]:
        """Its answer: "seconds", or an "error"."""
        pipes: Any = self._process  # both are there, for the process was asked for them
        # Of a process that has ended there is no answer either.
        with contextlib.suppress(BrokenPipeError):
            pipes.stdin.write(json.dumps(asked) + "\n")
            pipes.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        """Its next line, which begins with one of its own accord."""
        pipes: Any = self._process
        line = pipes.stdout.readline()
        if not line:
            raise ValueError(
                "the process of torch_gpu.py ended, and says above why; install pfljax "
                "and torch for a GPU, or take --no-peer"
            )
        return json.loads(line)


class Rates(NamedTuple):
    """Steps of data a second, each call's; and what a peer said that failed."""

    ours: list[float]
    theirs: dict[str, list[float]]
    errors: dict[str, str]


def timed(
    ready: workloads.Ready, program: measure.Program, peer: Peer | None, repeats: int
) -> Rates:
    """Calls in turn."""
    rounds, rounds_of_peer = ROUNDS[ready.name]
    state = ready.init(jax.random.key(workloads.SEED))
    drawn = measure.draw_cohorts(ready, state.key, 0, rounds_of_peer)
    steps_of_peer = int(measure.count_steps(ready, state.key, 0, rounds_of_peer).sum())
    state = measure.warm_up(program, ready, state)
    rates = Rates(ours=[], theirs={}, errors={})
    for _ in range(repeats):
        steps = measure.count_steps(ready, state.key, int(state.round), rounds).sum()
        state, seconds = measure.time_rounds(program, ready, state, rounds)
        rates.ours.append(float(steps / seconds))
        forms = FORMS if ready.method == "fedavg" else FORMS[:1]
        for form in forms if peer is not None else ():
            reply = peer.ask(
                workload=ready.name,
                method=ready.method,
                form=form,
                precision=ready.workload.precision,
                cohorts=drawn.tolist(),
            )
            if "error" in reply:
                rates.errors[form] = reply["error"]
            else:
                rate = steps_of_peer / reply["seconds"]
                rates.theirs.setdefault(form, []).append(rate)
    return rates


def kernels(
    ready: workloads.Ready, program: measure.Program
) -> list[tuple[str, int, float]]:
    """(name, calls, microseconds) of each kernel in a round, those of most time first.

    Only on a GPU: a CPU's trace has no such plane.
    """
    state = ready.init(jax.random.key(workloads.SEED))
    state = measure.warm_up(program, ready, state)
    with tempfile.TemporaryDirectory() as traces:
        with jax.profiler.trace(traces):
            state, _ = measure.time_rounds(program, ready, state, 1)
        (file,) = Path(traces).rglob("*.xplane.pb")
        profile = jax.profiler.ProfileData.from_file(str(file))
    spent: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for plane in profile.planes:
        if not plane.name.startswith("/device:GPU"):
            continue
        for line in plane.lines:
            if line.name.startswith("Stream"):
                for event in line.events:
                    spent[event.name] += event.duration_ns
                    calls[event.name] += 1
    return [(name, calls[name], ns / 1000) for name, ns in spent.most_common()]


def described(ready: workloads.Ready, program: measure.Program) -> dict[str, Any]:
    """What was timed, and what it takes beside time."""
    return {
        "workload": ready.name,
        "method": ready.method,
        "model": ready.workload.model,
        "cohort": ready.workload.cohort,
        "precision": ready.workload.precision,
        "compile_seconds": program.compile_seconds,
        "device_bytes": program.device_bytes,
        "peak_bytes": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
    }


def line(result: dict[str, Any]) -> str:
    """A result in a line: every value, and the ratios of medians."""
    median = statistics.median(result["ours"])
    parts = [f"{result['workload']} {result['method']}"]
    parts += [f"pfljax {values(result['ours'])}"]
    for form, theirs in result["theirs"].items():
        ratio = median / statistics.median(theirs)
        parts.append(f"{form} {values(theirs)}, {ratio:.2f} times")
    parts += [f"{form}: {error}" for form, error in result["errors"].items()]
    parts.append(f"compiled in {result['compile_seconds']:.1f} s")
    return "; ".join(parts)


def values(rates: list[float]) -> str:
    """Rates with a comma between thousands."""
    return ", ".join(f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}" for rate in rates)


def main(
    cases: tuple[str, ...] = tuple(WORKLOADS),
    repeats: Positive = 3,
    peer: bool = True,
    precision: str = "float32",
    model: str | None = None,
    cohort: int | None = None,
    trace: bool = False,
    out: Path = Path("runs/gpu.json"),
) -> None:
    """Measures `cases`, with another model or cohort where one is given."""
    groups = {"W8", "W9"} & set(cases)
    if peer and (precision == "bfloat16" or model or (cohort and groups)):
        raise ValueError(
            "the peer has the catalogue's models, in float32 or tf32, and all clients "
            "of W8 and W9; take --no-peer"
        )
    files.make_folder(out.parent)
    devices.prepare()
    devices.use_compile_cache()
    asked = Peer() if peer else None
    device = jax.devices()[0]
    print(f"{device.device_kind}, jax {jax.__version__}", flush=True)
    options: dict[str, Any] = {"precision": precision}
    options |= {"model": model} if model is not None else {}
    options |= {"cohort": cohort} if cohort is not None else {}
    results = []
    for name in cases:
        workload = WORKLOADS[name]._replace(**options)
        for method in workload.methods:
            ready = workloads.prepare(name, workload, method)
            state = ready.init(jax.random.key(workloads.SEED))
            program = measure.compile_program(ready, state, ROUNDS[name][0])
            rates = timed(ready, program, asked, repeats)
            results.append(described(ready, program) | rates._asdict())
            print(line(results[-1]), flush=True)
            if trace:
                for kernel, calls, spent in kernels(ready, program)[:40]:
                    print(f"  {spent:12,.0f} us {calls:8,} {kernel}", flush=True)
            written = {
                "device": device.device_kind,
                "jax": jax.__version__,
                "flags": os.environ.get("XLA_FLAGS", ""),
                "results": results,
            }
            folder.write_json(out, written)


if __name__ == "__main__":
    script.run(main)
