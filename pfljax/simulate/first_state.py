"""Compiles the function that makes the state before the first round."""

from functools import partial
from typing import Any

import jax

from pfljax import engine
from pfljax.core import tree
from pfljax.core.types import Key, RunState, Task
from pfljax.engine import Setting, mesh
from pfljax.engine.state import (
    client_shape,
    first_clients,
    first_server,
    init_stacks,
    join_stacks,
    make_params,
    split_stacks,
)
from pfljax.runtime.programs import quickly_compiled


def make_init(
    setting: Setting, task: Task, num_clients: int, stored: bool = False
) -> Any:
    """A compiled function of a key that makes the first state on the mesh.

    If `stored`, the state has no clients: a store makes them when they are first drawn.
    """
    grid = setting.mesh
    where = mesh.shardings(grid, shapes_of_state(setting, task, num_clients))
    # Compiled in parts: in one program XLA fuses them, and the bits of the server would
    # depend on whether clients are made with it or later.
    stacks = init_stacks(setting, task, num_clients)
    first_params = make_params(setting, task)
    make_server = quickly_compiled(
        lambda params, key: first_server(setting, params, num_clients, key),
        out_shardings=where._replace(clients=()),
    )
    make_stacks = []
    for stack, lies in zip(stacks, split_stacks(setting, where.clients), strict=True):
        client = client_shape(stack.algorithm, stack.task)
        nbytes = tree.nbytes(client) * len(stack.ids)
        make = partial(first_clients, stack.algorithm, grid)
        make_stacks.append(quickly_compiled(make, nbytes, out_shardings=lies))

    def init(key: Key) -> RunState:
        params = first_params(key)
        state = make_server(params, key)
        if stored:
            return state
        parts = []
        for stack, make in zip(stacks, make_stacks, strict=True):
            params = make_params(setting, stack.task)(key)
            parts.append(make(params, stack.ids, key))
        return state._replace(clients=join_stacks(setting, parts))

    return init


def shapes_of_state(setting: Setting, task: Task, num_clients: int) -> RunState:
    """The shapes of the state, including the padding for several devices."""
    first = partial(engine.init, setting, task, num_clients)
    return jax.eval_shape(first, jax.eval_shape(jax.random.key, 0))
