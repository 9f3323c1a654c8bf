"""Measures workloads one after another, alone or in turn with a peer."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from pfljax.bench import (
    against,
    asynchronous,
    channels,
    compiling,
    cost,
    figure,
    groups,
    landscape,
    lowered,
    measure,
    memory,
    posterior,
    startup,
    table,
)
from pfljax.bench.catalogue import WORKLOADS
from pfljax.bench.workloads import Ready, build
from pfljax.registry import find
from pfljax.runs.folder import write_json
from pfljax.runtime import devices, files

Result = dict[str, Any]
# Benches with tables of their own, in which nothing is steps a second.
OTHERS: dict[str, Callable[..., str]] = {
    **dict.fromkeys(landscape.CASES, landscape.run),
    startup.NAME: startup.run,
    memory.NAME: memory.run,
    compiling.NAME: compiling.run,
    lowered.NAME: lowered.run,
    posterior.NAME: posterior.run,
    channels.NAME: channels.run,
    asynchronous.NAME: asynchronous.run,
}


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
      names: workloads, keys of `WORKLOADS`; none: all. Or of `landscape.CASES`, or
        "startup", what a run costs before and after its rounds, "memory", what a
        round holds, "compile", what its programs cost, "lowered", what a step is on
        GPUs and TPUs, "posterior", what distributions cost beside FedAvg, or
        "channels", what each of them adds to a round, or "asynchronous", what FedAsync
        and FedBuff do.
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
    for name in names:
        if name in OTHERS:
            return OTHERS[name](
                names,
                rounds=rounds,
                repeats=repeats,
                methods=methods,
                peer=peer,
                out=out,
                scale=scale,
            )
    cases = _cases(names or list(WORKLOADS), methods)
    _check(cases, rounds, repeats, peer)
    folder = files.make_folder(Path(out))
    devices.prepare()
    peak = cost.peak_flops(jax.devices())
    machine = table.machine(peak)
    results: list[Result] = []
    for name, method in cases:
        ready = build(name, method, scale)
        results.append(_case(ready, rounds, repeats, peer, peak))
        print(table.line(results[-1]), file=sys.stderr, flush=True)
        # After each workload: a bench that is stopped has written what it measured.
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
    cases: list[tuple[str, str]],
    rounds: int | None,
    repeats: int,
    peer: str | None,
) -> None:
    for name, _ in cases:
        find("workload", WORKLOADS, name)
    measure.check_counts(rounds=rounds, repeats=repeats)
    if peer is not None:
        against.check(peer, cases)


def _case(
    ready: Ready,
    rounds: int | None,
    repeats: int,
    peer: str | None,
    peak: float,
) -> Result:
    """All figures of one workload under one method."""
    rounds = rounds or ready.workload.rounds
    made = groups.together(ready, rounds)
    program = made.program
    state, highest = measure.warm_up(program, ready, made.state)
    alone = groups.alone(ready, rounds)
    samples = []
    apart = []
    rates = []
    # Ours, peer, ours, peer: both have the machine's good and bad moments.
    for _ in range(repeats):
        state, taken = measure.sample(program, ready, state, rounds)
        samples.append(taken)
        if alone:
            alone, seconds = groups.sample(alone, rounds)
            apart.append(seconds)
        if peer is not None:
            rates.append(against.ask(peer, ready.name, ready.method))
    return (
        _described(ready, rounds)
        | _times(samples, rounds, rates)
        | _costs(ready, program, samples, peak)
        | {"round_peak_bytes": highest}
        | groups.figures(ready, made, samples, apart, rounds)
    )


def _described(ready: Ready, rounds: int) -> Result:
    return {
        "workload": ready.name,
        "method": ready.method,
        "model": ready.workload.model,
        "parameters": groups.mean(cost.parameters, ready),
        "clients": ready.workload.clients,
        "cohort": ready.workload.cohort,
        "rounds": rounds,
        "width": ready.setting.width,
    }


def _times(samples: list[measure.Sample], rounds: int, rates: list[float]) -> Result:
    """Seconds a round and steps a second: the spread, and every single value."""
    ours = [taken.steps / taken.seconds for taken in samples]
    steps = sum(taken.steps for taken in samples)
    executed = sum(taken.executed for taken in samples)
    times: Result = {
        "seconds_per_round": measure.spread(
            [taken.seconds / rounds for taken in samples]
        ),
        "steps_per_second": measure.spread(ours),
        "samples": [taken._asdict() for taken in samples],
        "useful": steps / executed,
    }
    evaluated = [taken for taken in samples if taken.evaluation is not None]
    if evaluated:
        judged = [_with_evaluations(taken, rounds) for taken in evaluated]
        times["steps_per_second_with_evaluations"] = measure.spread(judged)
    if rates:
        times["peer"] = _peer(ours, rates)
    return times


def _peer(ours: list[float], theirs: list[float]) -> Result:
    """The peer's steps a second, and the ratio of the medians."""
    spread = measure.spread(theirs)
    ratio = measure.spread(ours)["median"] / spread["median"]
    return {
        "steps_per_second": spread,
        "ratio": ratio,
        "ours": ours,
        "theirs": theirs,
    }


def _with_evaluations(taken: measure.Sample, rounds: int) -> float:
    """Steps per second with an evaluation every `EVAL_EVERY` rounds."""
    judging = (taken.evaluation or 0.0) * rounds / measure.EVAL_EVERY
    return taken.steps / (taken.seconds + judging)


def _costs(
    ready: Ready,
    program: measure.Program,
    samples: list[measure.Sample],
    peak: float,
) -> Result:
    """Arithmetic, compilation, memory, bytes."""
    flops = groups.mean(cost.step_flops, ready) or 0
    shares = [flops * taken.steps / taken.seconds / peak for taken in samples]
    return {
        "flops_per_step": flops,
        "xla_flops_per_step": groups.mean(cost.step_xla_flops, ready),
        "peak_flops": peak,
        "share_of_peak": measure.spread(shares),
        "compile_seconds": program.compile_seconds,
        "process_megabytes": cost.process_megabytes(),
        "temp_bytes": program.temp_bytes,
        "device_peak_bytes": cost.device_bytes(),
        "bytes_per_step": groups.mean(cost.step_bytes, ready),
        "traffic_bytes_per_round": cost.traffic_bytes(ready),
    }
