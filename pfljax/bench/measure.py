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
from pfljax.runtime.memory import needed_bytes

# The machine's peak is measured by PRODUCTS products of SIDE x SIDE in each call.
SIDE = 2048
PRODUCTS = 4
TRIES = 5


class Program(NamedTuple):
    """The compiled rounds."""

    run: Callable[..., Any]  # (state, train, count) -> (state, metrics)
    compile_seconds: float
    device_bytes: int  # of a device, in one call


def compile_program(ready: Ready, state: RunState, rounds: int) -> Program:
    """The program of up to `rounds` rounds, compiled."""
    start = time.perf_counter()
    jitted: Any = engine.compile_rounds(ready.setting, rounds)
    run = jitted.lower(state, ready.train, _count(ready, rounds)).compile()
    return Program(run, time.perf_counter() - start, needed_bytes(run))


def _count(ready: Ready, rounds: int) -> jax.Array:
    """A number of rounds, placed on the devices of the program."""
    return mesh.place(ready.setting.mesh, jnp.int32(rounds))


def warm_up(program: Program, ready: Ready, state: RunState) -> RunState:
    """The state after one round that is not timed."""
    state, _ = program.run(state, ready.train, _count(ready, 1))
    return jax.block_until_ready(state)


def time_rounds(
    program: Program, ready: Ready, state: RunState, rounds: int
) -> tuple[RunState, float]:
    """The state after `rounds` more rounds, and their seconds."""
    # Calls return before the device is done: wait for the last array.
    start = time.perf_counter()
    state, _ = program.run(state, ready.train, _count(ready, rounds))
    jax.block_until_ready(state)
    return state, time.perf_counter() - start


def count_steps(ready: Ready, key: Key, first: int, rounds: int) -> np.ndarray:
    """Local steps i[rounds, M] of the clients drawn in `rounds` rounds from `first` on.

    Raises:
      ValueError: the selection learns, so the cohorts are not known beforehand.
    """
    sizes = ready.train.size[draw_cohorts(ready, key, first, rounds)]
    return np.asarray(budget(ready.setting.local, sizes))


def draw_cohorts(ready: Ready, key: Key, first: int, rounds: int) -> np.ndarray:
    """The clients i32[rounds, M] drawn in `rounds` rounds from `first` on.

    Raises:
      ValueError: the selection learns, so the cohorts are not known beforehand.
    """
    setting = ready.setting
    if selection.learns(setting.selection):
        raise ValueError(
            "the selection learns from each round, so steps cannot be counted before "
            "the rounds are run; expected another selection, such as uniform"
        )
    state = setting.selection.init()

    def draw(round_: jax.Array) -> jax.Array:
        return engine.draw(setting, state, key, round_)

    return np.asarray(jax.vmap(draw)(first + jnp.arange(rounds)))


def measure_peak(devices: Sequence[Any] | None = None) -> float:
    """FLOP/s of large f32 products on all `devices` at once; the best of five tries."""
    devices = devices or jax.devices()[:1]
    product = jax.jit(jnp.matmul)
    ones = jnp.ones((SIDE, SIDE), jnp.float32)
    squares = [jax.device_put(ones, device) for device in devices]

    def seconds() -> float:
        start = time.perf_counter()
        # All devices work at once: nothing waits before the last call.
        products = [product(square, square) for square in squares * PRODUCTS]
        jax.block_until_ready(products)
        return time.perf_counter() - start

    seconds()  # compiles
    # The best, because other work on the machine only slows it down.
    fastest = min(seconds() for _ in range(TRIES))
    return PRODUCTS * len(squares) * 2 * SIDE**3 / fastest


def spread(values: Sequence[float]) -> dict[str, float]:
    """The median, the least and the largest value."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }
