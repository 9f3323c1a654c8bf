"""What asynchronous rounds cost beside synchronous ones of as many local steps.

10,000 clients of a small model, on one device. The seconds are of the machine, the
planning of the events on the host included; none of them is virtual.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from pfljax import engine
from pfljax.bench import measure
from pfljax.bench.catalogue import Workload
from pfljax.bench.measure import spread
from pfljax.bench.workloads import Ready, make_data, make_setting, make_task, shrink
from pfljax.core.communication import traffic_of
from pfljax.core.types import RunState
from pfljax.data import profiles
from pfljax.engine import Setting, asynchronous, mesh, modes
from pfljax.engine.clock import Clock
from pfljax.registry import parse
from pfljax.runs.folder import write_json
from pfljax.runtime import devices, files
from pfljax.simulate import clocks

NAME = "asynchronous"
PROFILE = "speed_groups:jitter=0.1"
SYNC = "sync"
MODES = ("fedbuff:buffer=100", "fedbuff:buffer=10", "fedasync")
COLUMNS = (
    "mode", "clients", "cohort", "uploads", "s (min to max)", "times sync's",
    "CPU seconds, times sync's",
)  # fmt: skip
WORKLOAD = Workload(
    model="mlp:hidden=(32,)",
    shape=(64,),
    num_classes=10,
    clients=10_000,
    rows=20,
    cohort=100,
    epochs=2,
    batch_size=10,
    learning_rate=0.1,
    rounds=30,
    pool=10_000,
)
NOTE = (
    "Each mode takes as many uploads, of as many local steps, as synchronous FedAvg "
    "beside it, in turn; ratios are of pairs. CPU seconds are those of the process, "
    "which other processes do not lengthen. All on one device: synchronous rounds may "
    "share several."
)

Result = dict[str, Any]


class Timed(NamedTuple):
    """A mode ready to be timed."""

    program: Any
    state: RunState
    rounds: int  # of a call


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
    """A Markdown table of what was measured; asynchronous.json in `out`.

    Args:
      names: "asynchronous" alone.
      rounds: synchronous ones of a timed call; None: thirty.
      repeats: timed calls of each mode, each followed by a synchronous one.
      methods: one at most, in the place of FedAvg.
      peer: must be None.
      out: the folder to write to.
      scale: below 1 for fewer clients and rows.

    Raises:
      ValueError: for other names, a peer, several methods, or no rounds or repeats.
    """
    if list(names) != [NAME] or peer is not None or len(methods) > 1:
        raise ValueError(
            f"{NAME} is timed alone, of one method, without other workloads or a peer; "
            "give it a command of its own"
        )
    measure.check_counts(rounds=rounds, repeats=repeats)
    folder = files.make_folder(Path(out))
    devices.prepare()
    workload = shrink(WORKLOAD, scale)
    workload = workload._replace(rounds=rounds or workload.rounds)
    ready = _ready(workload, methods[0] if methods else "fedavg")
    results: list[Result] = []
    for mode in MODES:
        choice = mode.partition(":")[0] if workload.cohort < WORKLOAD.cohort else mode
        results.append(compared(ready, choice, repeats))
        print(" | ".join(_cells(results[-1])), file=sys.stderr, flush=True)
        # After each mode: a bench that is stopped has written what it measured.
        written = {"jax": jax.__version__, "results": results}
        write_json(folder / f"{NAME}.json", written)
    return markdown(results)


class Seconds(NamedTuple):
    """What a call took."""

    wall: float
    cpu: float  # of all threads of the process


def compared(ready: Ready, mode: str, repeats: int) -> Result:
    """The figures of a mode, timed in turn with synchronous rounds."""
    workload = ready.workload
    base = _timed(ready, SYNC)
    timed = _timed(ready, mode)
    pairs = []
    for _ in range(repeats):
        timed, ours = _sample(timed, ready)
        base, theirs = _sample(base, ready)
        pairs.append((ours, theirs))
    return {
        "mode": mode,
        "method": ready.method,
        "clients": workload.clients,
        "cohort": workload.cohort,
        "uploads": workload.cohort * workload.rounds,
        "seconds": spread([ours.wall for ours, _ in pairs]),
        "ratio": spread([ours.wall / theirs.wall for ours, theirs in pairs]),
        "cpu_ratio": spread([ours.cpu / theirs.cpu for ours, theirs in pairs]),
    }


def _ready(workload: Workload, method: str) -> Ready:
    """The workload on one device."""
    task = make_task(workload)
    setting = make_setting(workload, task, method)._replace(mesh=None)
    train, test = make_data(workload)
    return Ready(
        name=NAME,
        method=method,
        workload=workload,
        task=task,
        setting=setting,
        train=mesh.place(None, train),
        test=test,
    )


def _with_mode(ready: Ready, text: str) -> Setting:
    """The setting in a mode, with the clock of its devices."""
    workload = ready.workload
    size = workload.clients, workload.shape
    sent = traffic_of(ready.setting.algorithm, ready.task, *size)
    profile = profiles.make(parse(PROFILE), workload.clients)
    assert profile is not None
    same = profile.down * 0
    clock = Clock(profile, down=same + sent.down, up=same + sent.up)
    setting = ready.setting._replace(clock=clock)
    mode = modes.make(parse(text), workload.cohort)
    if mode is None:
        return setting
    like = clocks.pending_of(setting, mode, ready.task, *size)
    return setting._replace(mode=mode._replace(like=like))


def _timed(ready: Ready, text: str) -> Timed:
    """The mode after a call that nobody times."""
    setting = _with_mode(ready, text)
    uploads = ready.workload.cohort * ready.workload.rounds
    rounds = ready.workload.rounds
    if setting.mode is None:
        program: Any = engine.compile_rounds(setting, rounds)
    else:
        rounds = -(-uploads // (setting.mode.buffer * setting.mode.versions))
        program = asynchronous.compile_rounds(setting, rounds)
    key = jax.random.key(0)
    state = engine.init(setting, ready.task, ready.workload.clients, key)
    # As it lies after a call: else the second call would compile once more.
    state = mesh.place(None, state)
    timed, _ = _sample(Timed(program, state, rounds), ready)
    return timed


def _sample(timed: Timed, ready: Ready) -> tuple[Timed, Seconds]:
    """The mode after one more call, and its seconds."""
    start = time.perf_counter()
    cpu = time.process_time()
    state, _ = timed.program(timed.state, ready.train, timed.rounds)
    jax.block_until_ready(state)
    seconds = Seconds(time.perf_counter() - start, time.process_time() - cpu)
    return timed._replace(state=state), seconds


def markdown(results: list[Result]) -> str:
    """The table, and what stands below it."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, results)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", NOTE])


def _cells(result: Result) -> tuple[str, ...]:
    return (
        result["mode"],
        *(f"{result[name]:,}" for name in ("clients", "cohort", "uploads")),
        _span(result["seconds"]),
        _span(result["ratio"]),
        _span(result["cpu_ratio"]),
    )


def _span(values: dict[str, float]) -> str:
    return f"{values['median']:.3g} ({values['min']:.3g} to {values['max']:.3g})"
