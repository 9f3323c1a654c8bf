"""Measures workloads one after another, alone or in turn with a peer."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from pfljax.bench import against, cost, figure, landscape, measure, table
from pfljax.bench.workloads import WORKLOADS, Ready, build
from pfljax.registry import find
from pfljax.runs.folder import write_json
from pfljax.runtime import devices

Result = dict[str, Any]


def run(
    names: Sequence[str] = (),
    *,
    rounds: int | None = None,
    repeats: int = 3,
    methods: Sequence[str] = (),
    peer: str | None = None,
    out: str | Path = "runs/bench",
    scale: float = 1.0,
) -> str:
    """A Markdown table of what was measured; results.json and bench.png in `out`.

    Args:
      names: workloads, keys of `WORKLOADS`; none: all. Or of `landscape.CASES`.
      rounds: of one timed call; None: the workload's own number. Of a landscape, points
        along an axis.
      repeats: timed calls of each workload, each followed by one of the peer.
      methods: in the place of the workloads' own.
      peer: a command, see `against.ask`.
      out: the folder to write to.
      scale: below 1 for small copies of the workloads.

    Raises:
      ValueError: for unknown names, no rounds or repeats, or a peer that fails.
    """
    if set(names) & set(landscape.CASES):
        more: Any = {"points": rounds, "repeats": repeats, "peer": peer}
        return landscape.run(names, **more, out=out, scale=scale)
    cases = _cases(names or list(WORKLOADS), methods)
    _check(cases, rounds, repeats, peer)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    devices.prepare()
    peak = cost.peak_flops(jax.devices())
    machine = table.machine(peak)
    results: list[Result] = []
    for name, method in cases:
        ready = build(name, method, scale)
        results.append(_case(ready, rounds, repeats, peer, peak))
        print(table.line(results[-1]), file=sys.stderr, flush=True)
        write_json(folder / "results.json", {"machine": machine, "results": results})
    figure.write(results, folder)
    return table.markdown(machine, results)


def _cases(names: Sequence[str], methods: Sequence[str]) -> list[tuple[str, str]]:
    """(workload, method) in the order in which they run."""
    return [
        (name, method)
        for name in names
        for method in methods or find("workload", WORKLOADS, name).methods
    ]


def _check(
    cases: list[tuple[str, str]], rounds: int | None, repeats: int, peer: str | None
) -> None:
    for name, _ in cases:
        find("workload", WORKLOADS, name)
    for key, value in (("rounds", rounds), ("repeats", repeats)):
        if value is not None and value < 1:
            raise ValueError(f"{key} is {value}; expected at least 1")
    if peer is not None:
        against.check(peer, cases)


def _case(
    ready: Ready, rounds: int | None, repeats: int, peer: str | None, peak: float
) -> Result:
    """All figures of one workload under one method."""
    rounds = rounds or ready.workload.rounds
    state = ready.init(jax.random.key(0))
    program = measure.compile_program(ready, state, rounds)
    state = measure.warm_up(program, ready, state)
    samples, rates = [], []
    for _ in range(repeats):  # ours, peer, ours, peer: the machine's mood is shared
        state, taken = measure.sample(program, ready, state, rounds)
        samples.append(taken)
        if peer is not None:
            rates.append(against.ask(peer, ready.name, ready.method))
    return (
        _described(ready, rounds)
        | _times(samples, rounds, rates)
        | _costs(ready, program, samples, peak)
    )


def _described(ready: Ready, rounds: int) -> Result:
    return {
        "workload": ready.name,
        "method": ready.method,
        "model": ready.workload.model,
        "parameters": cost.parameters(ready),
        "clients": ready.workload.clients,
        "cohort": ready.workload.cohort,
        "rounds": rounds,
        "width": ready.setting.width,
    }


def _times(samples: list[measure.Sample], rounds: int, rates: list[float]) -> Result:
    """Seconds a round and steps a second: the spread, and every single value."""
    ours = [s.steps / s.seconds for s in samples]
    found: Result = {
        "seconds_per_round": measure.spread([s.seconds / rounds for s in samples]),
        "steps_per_second": measure.spread(ours),
        "samples": [s._asdict() for s in samples],
        "useful": sum(s.steps for s in samples) / sum(s.executed for s in samples),
    }
    judged = [_with_evaluations(s, rounds) for s in samples if s.evaluation is not None]
    if judged:
        found["steps_per_second_with_evaluations"] = measure.spread(judged)
    if rates:
        peers = measure.spread(rates)
        ratio = found["steps_per_second"]["median"] / peers["median"]
        found["peer"] = {"steps_per_second": peers, "ratio": ratio}
        found["peer"] |= {"ours": ours, "theirs": rates}
    return found


def _with_evaluations(taken: measure.Sample, rounds: int) -> float:
    """Steps per second with an evaluation every `EVAL_EVERY` rounds."""
    judging = (taken.evaluation or 0.0) * rounds / measure.EVAL_EVERY
    return taken.steps / (taken.seconds + judging)


def _costs(
    ready: Ready, program: measure.Program, samples: list[measure.Sample], peak: float
) -> Result:
    """Arithmetic, compilation, memory, bytes."""
    flops = cost.step_flops(ready)
    rates = [flops * s.steps / s.seconds / peak for s in samples]
    return {
        "flops_per_step": flops,
        "peak_flops": peak,
        "share_of_peak": measure.spread(rates),
        "compile_seconds": program.compile_seconds,
        "process_megabytes": cost.process_megabytes(),
        "temp_bytes": program.temp_bytes,
        "device_peak_bytes": cost.device_bytes(),
        "bytes_per_step": cost.step_bytes(ready),
        "traffic_bytes_per_round": cost.traffic_bytes(ready),
    }
