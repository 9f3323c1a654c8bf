"""Times calls of the compiled rounds, and counts the local steps in them."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine, selection
from pfljax.bench.workloads import Ready
from pfljax.core.training import budget
from pfljax.core.types import Key, RunState
from pfljax.engine import mesh
from pfljax.evaluation.programs import judge_server
from pfljax.runtime import memory

EVAL_EVERY = 10  # rounds between two evaluations


class Program(NamedTuple):
    """The compiled rounds, and the central evaluation if there is one."""

    run: Callable[..., Any]  # (state, train, count) -> (state, metrics)
    evaluate: Callable[..., Any] | None
    compile_seconds: float
    temp_bytes: int | None


class Sample(NamedTuple):
    """One timed call."""

    seconds: float
    steps: int  # real local steps, those of data
    executed: int  # steps that the lanes ran, waiting ones included
    evaluation: float | None  # seconds of one evaluation


def check_counts(**counts: int | None) -> None:
    """Raises a ValueError for a count that no program counts to; None is unchosen."""
    for name, count in counts.items():
        if count is not None and not 1 <= count < 2**31:
            raise ValueError(f"{name} is {count}; expected at least 1, below 2**31")


def compile_program(ready: Ready, state: RunState, rounds: int) -> Program:
    """The program of up to `rounds` rounds; its first call compiles nothing."""
    start = time.perf_counter()
    jitted: Any = engine.compile_rounds(ready.setting, rounds)
    run = jitted.lower(state, ready.train, _count(ready, rounds)).compile()
    seconds = time.perf_counter() - start
    sizes = run.memory_analysis()
    return Program(
        run=run,
        evaluate=_evaluation(ready),
        compile_seconds=seconds,
        temp_bytes=None if sizes is None else int(sizes.temp_size_in_bytes),
    )


def _count(ready: Ready, rounds: int) -> jax.Array:
    """A number of rounds, where a program compiled ahead of time expects it."""
    return mesh.place(ready.setting.mesh, jnp.int32(rounds))


def _evaluation(ready: Ready) -> Callable[..., Any] | None:
    """A jitted (server, test) -> metrics of the server's model."""
    if ready.test is None or ready.setting.algorithm.server_model is None:
        return None
    return judge_server(ready.setting, ready.task)


def sample(
    program: Program,
    ready: Ready,
    state: RunState,
    rounds: int,
) -> tuple[RunState, Sample]:
    """The state after `rounds` more rounds, and their times and counts."""
    # Before the call: the state is donated to it.
    counts = steps(ready, state.key, int(state.round), rounds)
    executed = sum(lane_steps(row, ready.setting.width) for row in counts)
    # Calls return before the device is done: the time is up to its last array.
    start = time.perf_counter()
    state, _ = program.run(state, ready.train, _count(ready, rounds))
    jax.block_until_ready(state)
    seconds = time.perf_counter() - start
    evaluation = None
    if program.evaluate is not None:
        start = time.perf_counter()
        jax.block_until_ready(program.evaluate(state.server, ready.test))
        evaluation = time.perf_counter() - start
    taken = Sample(
        seconds=seconds,
        steps=int(counts.sum()),
        executed=executed,
        evaluation=evaluation,
    )
    return state, taken


def warm_up(
    program: Program, ready: Ready, state: RunState
) -> tuple[RunState, int | None]:
    """The state after one round and one evaluation that nobody times.

    And the bytes that the process held at its highest in them, where the system says.
    """
    counted = memory.forget_peak()
    state, _ = program.run(state, ready.train, _count(ready, 1))
    if program.evaluate is not None:
        jax.block_until_ready(program.evaluate(state.server, ready.test))
    state = jax.block_until_ready(state)
    return state, memory.peak_bytes() if counted else None


def steps(ready: Ready, key: Key, first: int, rounds: int) -> np.ndarray:
    """Local steps i[rounds, M] of each drawn client in rounds `first`, ...

    Raises:
      ValueError: the selection learns, so who is drawn is not known beforehand.
    """
    sizes = ready.train.size[cohorts(ready, key, first, rounds)]
    return np.asarray(budget(ready.setting.local, sizes))


def cohorts(ready: Ready, key: Key, first: int, rounds: int) -> np.ndarray:
    """The clients i32[rounds, M] drawn in rounds `first`, ...

    Raises:
      ValueError: as of `steps`.
    """
    setting = ready.setting
    if selection.learns(setting.selection):
        raise ValueError(
            "the selection learns from each round, so steps cannot be counted before "
            "the rounds are run; expected one that does not, such as uniform"
        )

    # Its state is the first one still.
    learned = setting.selection.init()

    def ids_of(round_: jax.Array) -> jax.Array:
        return engine.draw(setting, learned, key, round_)

    return np.asarray(jax.vmap(ids_of)(first + jnp.arange(rounds)))


def lane_steps(counts: np.ndarray, width: int | None) -> int:
    """Steps that a round runs where a chunk waits for its longest client.

    `counts` [M] are dealt to chunks as `chunked_vmap.over_clients` does.
    """
    M = len(counts)
    width = M if width is None else min(width, M)
    descending = np.sort(counts)[::-1]
    # The first of each chunk is its longest, and the others wait for it.
    longest = descending[::width]
    return int(width * longest.sum())


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and largest."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }
