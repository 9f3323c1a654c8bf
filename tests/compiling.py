"""How much of a process JAX spends on tracing, lowering and compiling, by program."""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax

PHASES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",  # or fetch
}


class Work(NamedTuple):
    """One phase of one program."""

    phase: str  # a value of PHASES
    program: str  # as JAX names it
    seconds: float  # of all cores
    clock: float = 0.0  # seconds by the clock


@contextlib.contextmanager
def watch() -> Iterator[list[Work]]:
    """A list that gets what JAX traces, lowers and compiles in this context.

    Seconds are CPU time of the process: the clock's also count what others do on the
    machine.
    """
    done: list[Work] = []
    starts: list[float] = []

    def on_start(event: str, value: float | int, **of: str | int) -> None:
        if event in PHASES:
            starts.append(time.process_time())

    def on_end(event: str, duration_secs: float, **of: str | int) -> None:
        # A phase that began before the context has no start.
        if event in PHASES and starts:
            seconds = time.process_time() - starts.pop()
            program = str(of.get("fun_name"))
            done.append(Work(PHASES[event], program, seconds, duration_secs))

    jax.monitoring.register_scalar_listener(on_start)
    jax.monitoring.register_event_duration_secs_listener(on_end)
    try:
        yield done
    finally:
        jax.monitoring.unregister_scalar_listener(on_start)
        jax.monitoring.unregister_event_duration_listener(on_end)


def by_phase(works: list[Work]) -> dict[str, float]:
    """CPU seconds by phase."""
    seconds = dict.fromkeys(PHASES.values(), 0.0)
    for work in works:
        seconds[work.phase] += work.seconds
    return seconds


def programs(works: list[Work]) -> int:
    """How many programs were compiled or fetched."""
    return sum(work.phase == "compile" for work in works)
