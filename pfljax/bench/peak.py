"""The bytes of one round: as it is compiled, and as a process grows by it.

`bench.memory` asks a fresh process for each case. Rows and states are zeros: only their
shapes count.
"""

import json
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine
from pfljax.bench import workloads
from pfljax.bench.catalogue import Workload
from pfljax.core import tree
from pfljax.core.types import ClientData, Examples, RunState, Task
from pfljax.engine import Setting
from pfljax.runtime import memory


class Case(NamedTuple):
    """A round whose bytes are asked for."""

    workload: Workload
    method: str
    measured: bool = True  # else it is compiled alone


class Round(NamedTuple):
    """A compiled round, and its arguments as shapes."""

    program: Any  # (state, train, count) -> (state, metrics)
    state: RunState
    train: ClientData


def compile_round(case: Case) -> Round:
    """The round on one device, where nothing lies yet."""
    workload = case.workload
    task = workloads.make_task(workload)
    setting = workloads.make_setting(workload, task, case.method)
    # Several devices of a CPU share its memory, and each has the rows.
    return compile_setting(workload, task, setting._replace(mesh=None))


def compile_setting(workload: Workload, task: Task, setting: Setting) -> Round:
    """The round of a setting of one device."""

    def init(key: Any) -> RunState:
        return engine.init(setting, task, workload.clients, key)

    key: Any = jax.eval_shape(jax.random.key, 0)
    state = jax.eval_shape(init, key)
    train = _rows(workload)
    rounds: Any = engine.compile_rounds(setting, 1)
    program = rounds.lower(state, train, jnp.int32(1)).compile()
    return Round(program, state, train)


def _rows(workload: Workload) -> ClientData:
    """The clients' rows as shapes."""
    count = (workload.rows or 0) * workload.clients
    by_client: Any = jax.ShapeDtypeStruct((workload.clients,), jnp.int32)
    x: Any = jax.ShapeDtypeStruct((count, *workload.shape), jnp.float32)
    y: Any = jax.ShapeDtypeStruct((count,), jnp.int32)
    return ClientData(
        examples=Examples(x, y),
        offset=by_client,
        size=by_client,
    )


def compiled_bytes(compiled: Round) -> dict[str, int]:
    """What the round holds on its device, by what it is."""
    sizes = compiled.program.memory_analysis()
    return {
        "rows": tree.nbytes(compiled.train.examples),
        "clients": tree.nbytes(compiled.state.clients),
        "server": tree.nbytes(compiled.state.server),
        "arguments": sizes.argument_size_in_bytes,
        "temporaries": sizes.temp_size_in_bytes,
        "aliased": sizes.alias_size_in_bytes,
    }


def measured_bytes(compiled: Round, workload: Workload) -> int | None:
    """By how much this process grows, at its highest, by the data and a round.

    None where the system does not say.
    """
    before = memory.resident_bytes()
    if before is None or not memory.forget_peak():
        return None
    state = _zeros(compiled.state._replace(key=()))
    state = state._replace(key=jax.random.key(0))
    size = np.full(workload.clients, workload.rows, np.int32)
    train = ClientData(
        examples=_zeros(compiled.train.examples),
        offset=jnp.asarray(np.cumsum(size) - size, jnp.int32),
        size=jnp.asarray(size),
    )
    jax.block_until_ready(compiled.program(state, train, jnp.int32(1)))
    highest = memory.peak_bytes()
    return None if highest is None else highest - before


def _zeros(shapes: Any) -> Any:
    """Arrays of these shapes, on the device."""

    def of_leaf(leaf: Any) -> jax.Array:
        return jnp.zeros(leaf.shape, leaf.dtype)

    return jax.tree.map(of_leaf, shapes)


def main() -> None:
    """Prints the bytes of the case in the first argument, as JSON."""
    workload, method, measured = json.loads(sys.argv[1])
    # A tuple in JSON is a list, and a row's shape is a tuple.
    workload = Workload(**workload)
    workload = workload._replace(shape=tuple(workload.shape))
    compiled = compile_round(Case(workload, method))
    figures: dict[str, Any] = compiled_bytes(compiled)
    figures["peak"] = measured_bytes(compiled, workload) if measured else None
    print(json.dumps(figures))
