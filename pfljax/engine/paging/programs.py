"""What is compiled for a population in a store, and how much of it is held at once."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.types import Algorithm, Array, Key, Task
from pfljax.engine import Setting, mesh
from pfljax.engine.paging import records
from pfljax.engine.paging.records import Layout
from pfljax.engine.state import INIT_BLOCK, Stack, first_params, stacks_of
from pfljax.runtime.programs import Same, kept, quickly_compiled
from pfljax.selection.base import learns

RESIDENT_BYTES = 2**27  # of client states on the devices in one call, if a round fits
FILL_BYTES = 2**24  # of first states made at once
BLOCK = 4096  # clients judged in one call, if their states fit


class OfStack(NamedTuple):
    """The compiled functions of one stack of clients (`engine.state.stacks_of`).

    Those of stacked clients donate the first argument.
    """

    params: Callable[[Key], Any]  # the first parameters
    fill: Callable[..., Any]  # (clients, params, key, ids, rows, count) -> clients
    carry: Callable[..., Any]  # (clients, older clients, from, to) -> clients
    layout: Layout
    sharding: Any  # of each leaf of stacked clients
    members: np.ndarray  # i32[n], ascending: who has a record in its store
    resident: int  # U, states on the devices in a call
    fill_size: int  # first states made at once


class Programs(NamedTuple):
    """The compiled functions of a population in a store; shared by all seeds."""

    setting: Setting
    cohorts: Callable[..., Array]  # (selection state, key, round) -> i32[R, M]
    stacks: tuple[OfStack, ...]  # one, or one a group of clients
    num_clients: int
    padded: Callable[[int], int]  # a count of rows up to equal blocks of the devices


def client_shape(algorithm: Algorithm, task: Task) -> Any:
    """The state of a client, as shapes."""

    def one(key: Key) -> Any:
        params = task.init(derive(key, "params"))
        return engine.init_client(algorithm, params, jnp.int32(0), key)

    return jax.eval_shape(one, jax.eval_shape(jax.random.key, 0))


def make_params(setting: Setting, task: Task) -> Callable[[Key], Any]:
    """A jitted function key -> the first parameters, on every device of the mesh.

    One for all methods of the task.
    """
    return _make_params(Same(task), setting.mesh)


@kept
def _make_params(task: Same, grid: mesh.Grid | None) -> Callable[[Key], Any]:
    everywhere = mesh.sharding(grid, mesh.WHOLE)
    make = functools.partial(first_params, task.value)
    return quickly_compiled(make, out_shardings=everywhere)


def longest(setting: Setting, task: Task, num_clients: int, wanted: int) -> int:
    """Rounds of one call, at most `wanted`, whose clients' states fit.

    One where the selection learns: who takes part in a round must be known before the
    call, and follows from the results of the round before.
    """
    if learns(setting.selection):
        return 1
    of_all = 0
    of_a_place = 0  # in the cohort: each stack has room for whoever may stand there
    for stack in stacks_of(setting._replace(mesh=None), task, num_clients):
        nbytes = tree.nbytes(client_shape(stack.algorithm, stack.task))
        of_all += len(stack.ids) * nbytes
        of_a_place += nbytes
    if of_all <= RESIDENT_BYTES:
        return wanted
    fit = RESIDENT_BYTES // (most_clients(setting, 1) * of_a_place)
    return max(1, min(wanted, fit))


def most_clients(setting: Setting, rounds: int) -> int:
    """The most clients whose states a call of so many rounds reads or writes."""
    cohort = setting.selection.cohort
    mode = setting.mode
    if mode is None:
        return rounds * cohort
    # Who trains when the call begins, and whoever starts where one gets free.
    return cohort + mode.buffer - 1 + rounds * mode.versions * mode.buffer


def block(client: Any) -> int:
    """Clients judged in one call, wherever their states are: its bits may differ."""
    return _fitting(RESIDENT_BYTES, tree.nbytes(client), BLOCK)


def programs(setting: Setting, task: Task, num_clients: int, rounds: int) -> Programs:
    """The compiled parts, for calls of at most `rounds` rounds."""
    stacks = []
    for stack in stacks_of(setting, task, num_clients):
        members = stack.ids[stack.ids < num_clients]
        most = min(most_clients(setting, rounds), len(members))
        stacks.append(_of_stack(setting, stack, members, most))
    return Programs(
        setting=setting,
        cohorts=jax.jit(_cohorts(setting, rounds)),
        stacks=tuple(stacks),
        num_clients=num_clients,
        padded=functools.partial(mesh.padded, grid=setting.mesh),
    )


def _of_stack(
    setting: Setting, stack: Stack, members: np.ndarray, most: int
) -> OfStack:
    """The compiled parts of a stack, of which `most` clients are in a call."""
    client = client_shape(stack.algorithm, stack.task)
    nbytes = tree.nbytes(client)
    split = mesh.sharding(setting.mesh, mesh.SPLIT)
    sharding = jax.tree.map(lambda leaf: split, client)
    # The stacked clients are donated: with a copy, twice RESIDENT_BYTES would be held.
    on_stack = {"donate_argnums": 0, "out_shardings": sharding}
    fill = _fill(stack.algorithm, client)
    return OfStack(
        params=make_params(setting, stack.task),
        fill=quickly_compiled(fill, len(members) * nbytes, **on_stack),
        carry=jax.jit(_carry, **on_stack),
        layout=records.layout(client),
        sharding=sharding,
        members=members,
        resident=mesh.padded(most, setting.mesh),
        fill_size=_fitting(FILL_BYTES, nbytes, INIT_BLOCK, len(members)),
    )


def _cohorts(setting: Setting, rounds: int) -> Callable[..., Array]:
    def cohorts(selection_state: Any, key: Key, round_: Array) -> Array:
        coming = round_ + jnp.arange(rounds)
        return jax.lax.map(
            lambda index: engine.draw(setting, selection_state, key, index), coming
        )

    return cohorts


def _fill(algorithm: Algorithm, client: Any) -> Callable[..., Any]:
    def fill(clients, params, key, ids, rows, count):
        def make(index, states):
            state = engine.init_client(algorithm, params, ids[index], key)
            return tree.put(states, index, state)

        zeros = jax.tree.map(
            lambda leaf: jnp.zeros((len(ids), *leaf.shape), leaf.dtype), client
        )
        # One after another: random draws under vmap compile for seconds.
        states = jax.lax.fori_loop(0, count, make, zeros)
        return tree.put(clients, rows, states)

    return fill


def _carry(clients: Any, older: Any, from_rows: Array, to_rows: Array) -> Any:
    return tree.put(clients, to_rows, tree.take(older, from_rows))


def _fitting(room: int, nbytes: int, *counts: int) -> int:
    return max(1, min(room // max(1, nbytes), *counts))
