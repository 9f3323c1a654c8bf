"""What a distribution for each client costs beside FedAvg: seconds and bytes of W1."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from pfljax.bench import cost, measure
from pfljax.bench.measure import Program, Sample, spread
from pfljax.bench.workloads import Ready, build
from pfljax.core import tree
from pfljax.core.types import RunState
from pfljax.runs.folder import write_json
from pfljax.runtime import devices, files, memory

NAME = "posterior"
WORKLOAD = "W1"
BASE = "fedavg"
METHODS = ("pfedvem", "pfedbayes", "virtual")
COLUMNS = (
    "method", "s a round (min to max)", "times FedAvg's (min to max)",
    "MB down and up, a client and round", "MB a client keeps", "MB a round holds",
    "compile s",
)  # fmt: skip
NOTE = (
    f"{WORKLOAD}: a method's rounds are timed in turn with FedAvg's, and ratios are of "
    "pairs; FedAvg stands in the first line beside itself. A round holds what its "
    "compiled program does on a device: rows, the states of all clients, and what it "
    "needs beside them."
)

Result = dict[str, Any]


class Timed(NamedTuple):
    """A method ready to be timed."""

    ready: Ready
    program: Program
    state: RunState


def run(
    names: Sequence[str],
    *,
    rounds: int | None = None,
    repeats: int = 3,
    methods: Sequence[str] = (),
    peer: str | None = None,
    out: str | Path = "runs/bench",
    scale: float = 1.0,
) -> str:
    """A Markdown table of what was measured; posterior.json in `out`.

    Args:
      names: "posterior" alone.
      rounds: of one timed call; None: the workload's own number.
      repeats: timed calls of each method, each followed by one of FedAvg.
      methods: none: pFedVEM, pFedBayes and VIRTUAL.
      peer: must be None.
      out: the folder to write to.
      scale: below 1 for a small copy of the workload.

    Raises:
      ValueError: for other names, a peer, or no rounds or repeats.
    """
    if list(names) != [NAME] or peer is not None:
        raise ValueError(
            f"{NAME} is timed alone, without other workloads or a peer; give it a "
            "command of its own"
        )
    measure.check_counts(rounds=rounds, repeats=repeats)
    folder = files.make_folder(Path(out))
    devices.prepare()
    results: list[Result] = []
    for method in (BASE, *(methods or METHODS)):
        results.append(compared(method, rounds, repeats, scale))
        print(" | ".join(_cells(results[-1])), file=sys.stderr, flush=True)
        # After each method: a bench that is stopped has written what it measured.
        written = {"jax": jax.__version__, "results": results}
        write_json(folder / "posterior.json", written)
    return markdown(results)


def compared(method: str, rounds: int | None, repeats: int, scale: float) -> Result:
    """The figures of a method, timed in turn with FedAvg."""
    base = _timed(BASE, rounds, scale)
    timed = _timed(method, rounds, scale)
    rounds = rounds or timed.ready.workload.rounds
    pairs = []
    for _ in range(repeats):
        timed, ours = sample(timed, rounds)
        base, theirs = sample(base, rounds)
        pairs.append((ours.seconds, theirs.seconds))
    workload = timed.ready.workload
    return {
        "method": method,
        "seconds_per_round": spread([ours / rounds for ours, _ in pairs]),
        "ratio": spread([ours / theirs for ours, theirs in pairs]),
        "traffic_bytes": cost.traffic_bytes(timed.ready) // workload.cohort,
        "client_bytes": tree.nbytes(timed.state.clients) // workload.clients,
        "device_bytes": memory.needed_bytes(timed.program.run),
        "compile_seconds": timed.program.compile_seconds,
    }


def _timed(method: str, rounds: int | None, scale: float) -> Timed:
    """The method on the workload."""
    ready = build(WORKLOAD, method, scale)
    return warm(ready, rounds or ready.workload.rounds)


def warm(ready: Ready, rounds: int) -> Timed:
    """A workload after a round that nobody times."""
    state = ready.init(jax.random.key(0))
    program = measure.compile_program(ready, state, rounds)
    state, _ = measure.warm_up(program, ready, state)
    return Timed(ready, program, state)


def sample(timed: Timed, rounds: int) -> tuple[Timed, Sample]:
    """The method after more rounds, and what they took."""
    state, sample = measure.sample(timed.program, timed.ready, timed.state, rounds)
    return timed._replace(state=state), sample


def markdown(results: list[Result]) -> str:
    """The table, and what stands below it."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, results)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", NOTE])


def _cells(result: Result) -> tuple[str, ...]:
    megabytes = ("traffic_bytes", "client_bytes", "device_bytes")
    return (
        result["method"],
        _span(result["seconds_per_round"]),
        _span(result["ratio"]),
        *(f"{result[name] / 1e6:,.3g}" for name in megabytes),
        f"{result['compile_seconds']:.1f}",
    )


def _span(values: dict[str, float]) -> str:
    return f"{values['median']:.3g} ({values['min']:.3g} to {values['max']:.3g})"
