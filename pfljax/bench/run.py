"""Measures workloads one after another, alone or alternating with a peer."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from pfljax.bench import measure, peer, table
from pfljax.bench.catalogue import WORKLOADS
from pfljax.bench.workloads import Ready, build
from pfljax.core.requirements import find
from pfljax.runs.folder import write_json
from pfljax.runtime import devices, files
from pfljax.runtime.terminal import show
from pfljax.simulate.shape import Shape
from pfljax.simulate.step_cost import step_flops

Result = dict[str, Any]


def run(
    names: Sequence[str] = (),
    *,
    rounds: int | None = None,
    repeats: int = 3,
    methods: Sequence[str] = (),
    against: str | None = None,
    out: str | Path = "runs/bench",
    scale: float = 1.0,
) -> dict[str, Any]:
    """Measures workloads, and writes results.json to `out`.

    Args:
      names: workloads, keys of `WORKLOADS`; all if empty.
      rounds: of one timed call; None for the workload's own number.
      repeats: timed calls of each workload, each followed by one of the peer.
      methods: used instead of the workloads' own methods.
      against: the command of a peer, see `peer.ask`.
      out: the folder to write to.
      scale: below 1 for small copies of the workloads.

    Returns:
      The "machine" and the "results" of each workload.

    Raises:
      ValueError: a name is unknown, there are no rounds or repeats, or the peer fails.
    """
    cases = [
        (name, method)
        for name in names or WORKLOADS
        for method in methods or find("workload", WORKLOADS, name).methods
    ]
    _check_counts(rounds=rounds, repeats=repeats)
    if against is not None:
        peer.check(against, cases)
    folder = files.make_folder(Path(out))
    devices.prepare()
    peak = measure.measure_peak(jax.devices())
    machine = table.describe_machine(peak)
    results: list[Result] = []
    for name, method in cases:
        ready = build(name, method, scale)
        results.append(_measure(ready, rounds, repeats, against, peak))
        show(table.line(results[-1]), sys.stderr)
        # After each workload, so that a bench that is stopped keeps its results.
        write_json(folder / "results.json", {"machine": machine, "results": results})
    return {"machine": machine, "results": results}


def _check_counts(**counts: int | None) -> None:
    """Raises a ValueError for a count that is not in [1, 2**31)."""
    for name, count in counts.items():
        if count is not None and not 1 <= count < 2**31:
            raise ValueError(f"{name} is {count}; expected at least 1, below 2**31")


def _measure(
    ready: Ready,
    rounds: int | None,
    repeats: int,
    against: str | None,
    peak: float,
) -> Result:
    """All figures of one workload under one method."""
    workload = ready.workload
    rounds = rounds or workload.rounds
    state = ready.init(jax.random.key(0))
    program = measure.compile_program(ready, state, rounds)
    state = measure.warm_up(program, ready, state)
    flops = count_flops(ready)
    seconds = []
    ours = []
    peers = []
    # pfljax and the peer take turns: both have the machine's good and bad moments.
    for _ in range(repeats):
        # Counted before the call, to which the state is donated.
        steps = measure.count_steps(ready, state.key, int(state.round), rounds).sum()
        state, taken = measure.time_rounds(program, ready, state, rounds)
        seconds.append(taken / rounds)
        ours.append(float(steps / taken))
        if against is not None:
            peers.append(peer.ask(against, ready.name, ready.method))
    rate = measure.spread(ours)
    result: Result = {
        "workload": ready.name,
        "method": ready.method,
        "model": workload.model,
        "clients": workload.clients,
        "cohort": workload.cohort,
        "rounds": rounds,
        "seconds_per_round": measure.spread(seconds),
        "steps_per_second": rate | {"all": ours},
        "flops_per_step": flops,
        "share_of_peak": flops and flops * rate["median"] / peak,
        "compile_seconds": program.compile_seconds,
        "device_bytes": program.device_bytes,
    }
    return result | _compare_rates(rate["median"], peers)


def _compare_rates(rate: float, peers: Sequence[float]) -> Result:
    """The rates of the peer, and the ratio of `rate` to them; {} without a peer."""
    if not peers:
        return {}
    spread = measure.spread(peers)
    return {"peer": spread | {"all": peers}, "ratio": rate / spread["median"]}


def count_flops(ready: Ready) -> float | None:
    """FLOPs of one local step of the method; None for a model with a loop."""
    workload = ready.workload
    shape = Shape(workload.clients, workload.shape, workload.num_classes)
    return step_flops(ready.setting, ready.task, shape)
