"""The state of a run before its first round."""

from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.keys import derive
from pfljax.core.types import Algorithm, Array, Key, RunState, Task
from pfljax.engine import mesh
from pfljax.engine.mesh import Grid
from pfljax.engine.setting import Setting

INIT_BLOCK = 1024  # clients whose first states are made at once


def init(
    setting: Setting,
    task: Task,
    num_clients: int,
    key: Key,
) -> RunState:
    """The state before the first round; leaves of `clients` have a leading axis C."""
    params = first_params(task, key)
    state = first_server(setting, params, num_clients, key)
    algorithm = setting.algorithm
    clients = first_clients(algorithm, None, params, num_clients, key)
    return state._replace(clients=clients)


def first_params(task: Task, key: Key) -> Any:
    """The parameters that every first state is made of."""
    return task.init(derive(key, "params"))


def first_server(
    setting: Setting,
    params: Any,
    num_clients: int,
    key: Key,
) -> RunState:
    """The state before the first round, without the clients."""
    channel = setting.channel
    nobody = jnp.full(setting.selection.cohort, num_clients, jnp.int32)
    return RunState(
        key=key,
        round=jnp.int32(0),
        server=setting.algorithm.init(params, num_clients, derive(key, "server")),
        clients=(),
        participations=jnp.zeros(num_clients, jnp.int32),
        cohort=nobody,
        selection=setting.selection.init(),
        channel=() if channel is None else channel.init(),
    )


def first_clients(
    algorithm: Algorithm,
    grid: Grid | None,
    params: Any,
    num_clients: int,
    key: Key,
) -> Any:
    """The states of all clients before the first round, stacked.

    Each device makes its own. On a mesh give `mesh.padded(num_clients, mesh)`: rows
    past C belong to nobody.
    """

    # One at a time up to a block: random draws under vmap compile for seconds.
    batch_size = INIT_BLOCK if num_clients > INIT_BLOCK else None

    def locally(same: Any, ids: Array) -> Any:
        params, key = same

        def one(client_id: Array) -> Any:
            return init_client(algorithm, params, client_id, key)

        return jax.lax.map(one, ids, batch_size=batch_size)

    run = mesh.over(grid, locally, mesh.WHOLE, mesh.SPLIT)
    return run((params, key), jnp.arange(num_clients))


def init_client(
    algorithm: Algorithm,
    params: Any,
    client_id: Array,
    key: Key,
) -> Any:
    """The state of a client that has never taken part; also for clients never seen."""
    client_key = jax.random.fold_in(derive(key, "clients"), client_id)
    return algorithm.init_client(params, client_id, client_key)
