"""The state of a run before its first round."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import channel
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.types import Algorithm, Array, Key, RunState, Task
from pfljax.engine import mesh
from pfljax.engine.mesh import Grid
from pfljax.engine.modes import empty_pending
from pfljax.engine.setting import Setting
from pfljax.runtime.programs import Same, memoize, quickly_compiled

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
    stacks = []
    for stack in init_stacks(setting, task, num_clients):
        params = first_params(stack.task, key)
        clients = first_clients(stack.algorithm, None, params, stack.ids, key)
        stacks.append(clients)
    return state._replace(clients=join_stacks(setting, stacks))


class Stack(NamedTuple):
    """Clients with stacked states: all, or those of one architecture."""

    algorithm: Algorithm
    task: Task
    ids: np.ndarray  # i32[rows] of the clients; those past C fill the devices' blocks


def init_stacks(setting: Setting, task: Task, num_clients: int) -> list[Stack]:
    """The stacks of `RunState.clients`, in the order of the groups."""
    groups = setting.groups
    if groups is None:
        rows = mesh.round_up(num_clients, setting.mesh)
        return [Stack(setting.algorithm, task, np.arange(rows, dtype=np.int32))]
    stacks = []
    for group, of_group in enumerate(groups.tasks):
        members = groups.members(group, num_clients)
        missing = mesh.round_up(len(members), setting.mesh) - len(members)
        ids = np.append(members, np.full(missing, num_clients, np.int32))
        stacks.append(Stack(groups.algorithms[group], of_group, ids))
    return stacks


def split_ids(setting: Setting, ids: np.ndarray) -> list[np.ndarray]:
    """These clients by stack, in their order."""
    groups = setting.groups
    if groups is None:
        return [ids]
    number = groups.of(ids)
    return [ids[number == group] for group in range(len(groups.tasks))]


def split_stacks(setting: Setting, clients: Any) -> list[Any]:
    """The parts of each stack, of a tree with the form of `RunState.clients`."""
    return [clients] if setting.groups is None else list(clients)


def join_stacks(setting: Setting, stacks: list[Any]) -> Any:
    """`RunState.clients` of the stacks: one, or a tuple with one for each group."""
    return stacks[0] if setting.groups is None else tuple(stacks)


def first_params(task: Task, key: Key) -> Any:
    """The parameters from which every first state is made."""
    drawn = task.init(derive(key, "params"))
    if task.initial is None:
        return drawn
    return tree.merge(jax.tree.map(jnp.asarray, task.initial), drawn)


def first_server(
    setting: Setting,
    params: Any,
    num_clients: int,
    key: Key,
) -> RunState:
    """The state before the first round, without the clients."""
    empty = jnp.full(setting.selection.cohort, num_clients, jnp.int32)
    return RunState(
        key=key,
        round=jnp.int32(0),
        server=setting.algorithm.init(params, num_clients, derive(key, "server")),
        clients=(),
        participations=jnp.zeros(num_clients, jnp.int32),
        cohort=empty,
        selection=setting.selection.init(),
        channel=_first_channel(setting, num_clients, key),
        pending=empty_pending(setting.mode, setting.selection.cohort, num_clients),
    )


def _first_channel(setting: Setting, num_clients: int, key: Key) -> Any:
    """The state of the channel before the first round."""
    if setting.channel is None:
        return ()
    return setting.channel.init(channel.Start(key, num_clients))


def first_clients(
    algorithm: Algorithm,
    grid: Grid | None,
    params: Any,
    ids: Any,
    key: Key,
) -> Any:
    """The states of clients `ids` i32[rows] before the first round, stacked.

    Each device makes its own.
    """

    # One at a time up to a block: random draws under vmap compile for seconds.
    batch_size = INIT_BLOCK if len(ids) > INIT_BLOCK else None

    def init_here(same: Any, ids: Array) -> Any:
        params, key = same
        make = partial(init_client, algorithm, params, key=key)
        return jax.lax.map(make, ids, batch_size=batch_size)

    run = mesh.over(grid, init_here, mesh.WHOLE, mesh.SPLIT)
    return run((params, key), jnp.asarray(ids))


def init_client(
    algorithm: Algorithm,
    params: Any,
    client_id: Array,
    key: Key,
) -> Any:
    """The state of a client that has never taken part, or is new."""
    client_key = jax.random.fold_in(derive(key, "clients"), client_id)
    return algorithm.init_client(params, client_id, client_key)


def client_shape(algorithm: Algorithm, task: Task) -> Any:
    """The state of a client, as shapes."""

    def init_one(key: Key) -> Any:
        return init_client(algorithm, first_params(task, key), jnp.int32(0), key)

    return jax.eval_shape(init_one, jax.eval_shape(jax.random.key, 0))


def make_params(setting: Setting, task: Task) -> Callable[[Key], Any]:
    """A jitted function key -> the first parameters, on every device of the mesh.

    One for all methods of the task.
    """
    return _make_params(Same(task), setting.mesh)


@memoize
def _make_params(task: Same, grid: Grid | None) -> Callable[[Key], Any]:
    everywhere = mesh.sharding(grid, mesh.WHOLE)
    initial = task.value.initial
    is_whole = jax.tree.structure(initial) == jax.tree.structure(task.value.groups)
    if is_whole:
        return lambda key: jax.device_put(initial, everywhere)
    make = partial(first_params, task.value)
    return quickly_compiled(make, out_shardings=everywhere)
