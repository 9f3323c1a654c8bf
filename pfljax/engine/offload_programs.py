"""Compiled functions for clients whose states lie in a store.

They draw the cohorts of the coming rounds, make first states, and copy states between
the stacked clients of two calls.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.types import Array, Key, Task
from pfljax.engine import mesh
from pfljax.engine.plan import draw
from pfljax.engine.records import Layout, make_layout
from pfljax.engine.setting import Setting
from pfljax.engine.state import (
    INIT_BLOCK,
    Stack,
    client_shape,
    init_client,
    init_stacks,
    make_params,
)
from pfljax.runtime.programs import quickly_compiled
from pfljax.selection.base import learns

RESIDENT_BYTES = 2**27  # of client states on the devices in a call, if a round fits
FILL_BYTES = 2**24  # of first states made at a time
BLOCK = 4096  # clients evaluated in one call, if their states fit


class StackPrograms(NamedTuple):
    """The compiled functions of one stack of clients (`engine.state.init_stacks`).

    `fill` and `carry` donate their first argument.
    """

    params: Callable[[Key], Any]  # the first parameters
    fill: Callable[..., Any]  # (clients, params, key, ids, rows, count) -> clients
    carry: Callable[..., Any]  # (clients, older clients, from, to) -> clients
    layout: Layout
    sharding: Any  # of each leaf of stacked clients
    members: np.ndarray  # i32[n], ascending, clients with a record in its store
    resident: int  # U, states on the devices in a call
    fill_size: int  # first states made at a time


class Programs(NamedTuple):
    """The compiled functions of clients in a store, shared by all seeds."""

    setting: Setting
    cohorts: Callable[..., Array]  # (selection state, key, round) -> i32[R, M]
    stacks: tuple[StackPrograms, ...]  # one, or one for each group of clients
    num_clients: int


def longest_call(setting: Setting, task: Task, num_clients: int, wanted: int) -> int:
    """Rounds of one call, at most `wanted`, whose clients' states fit.

    It is 1 round if the selection learns: the clients of a round must be known before
    the call, and they depend on the results of the round before.
    """
    if learns(setting.selection):
        return 1
    total = 0
    nbytes_placed = 0  # of a place in the cohort, for which each stack has room
    for stack in init_stacks(setting._replace(mesh=None), task, num_clients):
        nbytes = tree.nbytes(client_shape(stack.algorithm, stack.task))
        total += len(stack.ids) * nbytes
        nbytes_placed += nbytes
    if total <= RESIDENT_BYTES:
        return wanted
    fit = RESIDENT_BYTES // (_most_clients(setting, 1) * nbytes_placed)
    return max(1, min(wanted, fit))


def _most_clients(setting: Setting, rounds: int) -> int:
    """The most clients whose states a call of so many rounds reads or writes."""
    cohort = setting.selection.cohort
    mode = setting.mode
    if mode is None:
        return rounds * cohort
    # Those that train when the call begins, and those that start during it.
    return cohort + mode.buffer - 1 + rounds * mode.versions * mode.buffer


def block_size(client: Any) -> int:
    """Clients evaluated in one call, the same for every store, so that bits agree."""
    return _fit(RESIDENT_BYTES, tree.nbytes(client), BLOCK)


def compile_programs(
    setting: Setting, task: Task, num_clients: int, rounds: int
) -> Programs:
    """The compiled functions, for calls of at most `rounds` rounds."""
    stacks = []
    for stack in init_stacks(setting, task, num_clients):
        members = stack.ids[stack.ids < num_clients]
        most = min(_most_clients(setting, rounds), len(members))
        stacks.append(_compile_stack(setting, stack, members, most))
    return Programs(
        setting=setting,
        cohorts=jax.jit(partial(_draw_cohorts, setting, rounds)),
        stacks=tuple(stacks),
        num_clients=num_clients,
    )


def _compile_stack(
    setting: Setting, stack: Stack, members: np.ndarray, most: int
) -> StackPrograms:
    """The compiled functions of a stack, of which `most` clients are in a call."""
    client = client_shape(stack.algorithm, stack.task)
    nbytes = tree.nbytes(client)
    split = mesh.sharding(setting.mesh, mesh.SPLIT)
    sharding = jax.tree.map(lambda leaf: split, client)
    # The stacked clients are donated: a copy would take another RESIDENT_BYTES.
    on_stack = {"donate_argnums": 0, "out_shardings": sharding}
    fill = partial(_fill, stack.algorithm, client)
    return StackPrograms(
        params=make_params(setting, stack.task),
        fill=quickly_compiled(fill, len(members) * nbytes, **on_stack),
        carry=jax.jit(_carry, **on_stack),
        layout=make_layout(client),
        sharding=sharding,
        members=members,
        resident=mesh.round_up(most, setting.mesh),
        fill_size=_fit(FILL_BYTES, nbytes, INIT_BLOCK, len(members)),
    )


def _draw_cohorts(
    setting: Setting, rounds: int, selection_state: Any, key: Key, round_: Array
) -> Array:
    """The cohorts of the next `rounds` rounds, i32[R, M]."""
    coming = round_ + jnp.arange(rounds)
    return jax.lax.map(lambda r: draw(setting, selection_state, key, r), coming)


def _fill(algorithm, client, clients, params, key, ids, rows, count):
    """The clients with first states in these rows, those of `ids` i32[n]."""

    def make(index, states):
        state = init_client(algorithm, params, ids[index], key)
        return tree.put(states, index, state)

    # One after another: random draws under vmap compile for seconds.
    empty = tree.stack_zeros(client, len(ids))
    states = jax.lax.fori_loop(0, count, make, empty)
    return tree.put(clients, rows, states)


def _carry(clients: Any, older: Any, from_rows: Array, to_rows: Array) -> Any:
    return tree.put(clients, to_rows, tree.take(older, from_rows))


def _fit(room: int, nbytes: int, *counts: int) -> int:
    return max(1, min(room // max(1, nbytes), *counts))
