"""Rounds of clients whose states lie in a store: they come and go between calls.

The cohorts of the coming rounds follow from the seed, and from what the selection has
learned. The states of these clients are put on the devices, the rounds run in one call,
and the states go back. While a call runs, the states of the call before are written,
and those of the next one are read:

    load (next)   from the store, or first states of clients that never took part
    carry         what both calls need, from device to device
    rounds        dispatched; then write (before), load (next)

Clients of several architectures have a store for each, and a page in every call.
Nothing here takes time or memory in proportion to the number of clients, so a million
of them fit on one device. No bit of a run depends on it: keys derive from client ids.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.types import Algorithm, Array, ClientData, Key, Metrics, RunState, Task
from pfljax.engine import mesh, stores
from pfljax.engine.asynchronous import AsyncRounds
from pfljax.engine.plan import FAR, draw
from pfljax.engine.population import DevicePopulation
from pfljax.engine.setting import Setting
from pfljax.engine.state import (
    INIT_BLOCK,
    Stack,
    client_shape,
    init_client,
    init_stacks,
    join_stacks,
    make_params,
    split_ids,
    split_stacks,
)
from pfljax.engine.stores import Layout, Store
from pfljax.runtime.programs import quickly_compiled
from pfljax.selection.base import learns

RESIDENT_BYTES = 2**27  # of client states on the devices in one call, if a round fits
FILL_BYTES = 2**24  # of first states made at once
BLOCK = 4096  # clients evaluated in one call, if their states fit


class StackPrograms(NamedTuple):
    """The compiled functions of one stack of clients (`engine.state.init_stacks`).

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
    """The compiled functions of clients in a store; shared by all seeds."""

    setting: Setting
    cohorts: Callable[..., Array]  # (selection state, key, round) -> i32[R, M]
    stacks: tuple[StackPrograms, ...]  # one, or one for each group of clients
    num_clients: int


def longest_call(setting: Setting, task: Task, num_clients: int, wanted: int) -> int:
    """Rounds of one call, at most `wanted`, whose clients' states fit.

    One where the selection learns: who takes part in a round must be known before the
    call, and follows from the results of the round before.
    """
    if learns(setting.selection):
        return 1
    total = 0
    nbytes_placed = 0  # in the cohort: each stack has room for whoever may stand there
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
    # Who trains when the call begins, and whoever starts where one gets free.
    return cohort + mode.buffer - 1 + rounds * mode.versions * mode.buffer


def block_size(client: Any) -> int:
    """Clients evaluated in one call, wherever their states are: bits may differ."""
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
        cohorts=jax.jit(_draw_cohorts(setting, rounds)),
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
    # The stacked clients are donated: with a copy, twice RESIDENT_BYTES would be held.
    on_stack = {"donate_argnums": 0, "out_shardings": sharding}
    fill = _fill(stack.algorithm, client)
    return StackPrograms(
        params=make_params(setting, stack.task),
        fill=quickly_compiled(fill, len(members) * nbytes, **on_stack),
        carry=jax.jit(_carry, **on_stack),
        layout=stores.make_layout(client),
        sharding=sharding,
        members=members,
        resident=mesh.round_up(most, setting.mesh),
        fill_size=_fit(FILL_BYTES, nbytes, INIT_BLOCK, len(members)),
    )


def _draw_cohorts(setting: Setting, rounds: int) -> Callable[..., Array]:
    def draw_cohorts(selection_state: Any, key: Key, round_: Array) -> Array:
        coming = round_ + jnp.arange(rounds)
        return jax.lax.map(
            lambda index: draw(setting, selection_state, key, index), coming
        )

    return draw_cohorts


def _fill(algorithm: Algorithm, client: Any) -> Callable[..., Any]:
    def fill(clients, params, key, ids, rows, count):
        def make(index, states):
            state = init_client(algorithm, params, ids[index], key)
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


def _fit(room: int, nbytes: int, *counts: int) -> int:
    return max(1, min(room // max(1, nbytes), *counts))


class Page(NamedTuple):
    """Clients of one stack that are on the devices."""

    ids: np.ndarray  # i64[n], ascending
    clients: Any  # their stacked states, U rows


@dataclass
class StoredStack:
    """The clients of one stack, between their store and the devices."""

    programs: StackPrograms
    store: Store  # of its members, by their place among them
    key: Key  # the run's
    params: Any  # the first ones

    def read(self, ids: np.ndarray, newest: Page | None) -> Page:
        """The page of these clients, without the states of those in `newest`."""
        rows = np.arange(len(ids))
        if newest is not None:
            is_newest = np.isin(ids, newest.ids, assume_unique=True)
            rows = np.flatnonzero(~is_newest)
        return Page(ids, self.load(ids, self.programs.resident, rows))

    def carry(self, page: Page, newest: Page | None) -> Any:
        """The page's clients, with the states of those in `newest`."""
        if newest is None:
            return page.clients
        _, from_rows, to_rows = np.intersect1d(
            newest.ids, page.ids, assume_unique=True, return_indices=True
        )
        if not len(from_rows):
            return page.clients
        return self.programs.carry(
            page.clients,
            newest.clients,
            _fill_up(from_rows, self.programs.resident),
            _fill_up(to_rows, self.programs.resident),
        )

    def write(self, round_: int, page: Page) -> None:
        """Writes the states of the page after so many rounds to the store."""
        if len(page.ids):  # perhaps nobody of this stack was drawn
            records = stores.pack(page.clients, len(page.ids))
            self.store.write(round_, self._places(page.ids), records)

    def load(self, ids: np.ndarray, size: int, rows: np.ndarray) -> Any:
        """`size` stacked states on the devices; of `ids`, those at `rows` are right."""
        programs = self.programs
        stored, met = self.store.read(self._places(ids[rows]))
        records = np.zeros((size, programs.layout.nbytes), np.uint8)
        records[rows] = stored
        states = stores.unpack(programs.layout, records)
        clients = jax.device_put(states, programs.sharding)
        new = rows[~met]
        for start in range(0, len(new), programs.fill_size):
            some = new[start : start + programs.fill_size]
            clients = programs.fill(
                clients,
                self.params,
                self.key,
                _fill_up(ids[some], programs.fill_size),
                _fill_up(some, programs.fill_size),
                np.int32(len(some)),
            )
        return clients

    def _places(self, ids: np.ndarray) -> np.ndarray:
        """The places of these clients among the members, i64[n]."""
        return np.searchsorted(self.programs.members, ids)


def _fill_up(rows: np.ndarray, size: int) -> np.ndarray:
    """i32[size]: `rows`, then rows past the end, which are not written."""
    # Always of one size: another would be another program.
    filled = np.full(size, FAR, np.int32)
    filled[: len(rows)] = rows
    return filled


class Call(NamedTuple):
    """The clients of one call."""

    round: int  # finished before it; of a call that has run, after it
    rounds: int  # in it
    pages: list[Page]  # by stack


@dataclass
class StoredPopulation:
    """Clients in stores, with the functions of `DevicePopulation`."""

    programs: Programs
    compiled: Callable[..., Any]  # engine.compile_rounds
    stacks: list[StoredStack]
    kept: Callable[[int], list[int]]  # checkpoints that stay when this round is saved
    asynchronous: AsyncRounds | None = None  # that know who takes part; None in cohorts
    latest: Call | None = None  # has run; its states are the newest
    written: bool = True  # and the stores have them
    coming: Call | None = None  # read ahead; what `latest` has is still missing
    saving: tuple[Any, list[int]] | None = None  # a checkpoint on its way

    def rounds(
        self, state: RunState, train: ClientData, count: int, ahead: int = 0
    ) -> tuple[RunState, Metrics]:
        """See `DevicePopulation`; reads the clients of `ahead` rounds meanwhile."""
        setting = self.programs.setting
        done = int(state.round)
        call = self.coming
        if call is None or (call.round, call.rounds) != (done, count):
            call = self._read(state, train, done, count)
        stacks = zip(self.stacks, call.pages, self._newest(), strict=True)
        clients = [stack.carry(page, newest) for stack, page, newest in stacks]
        state = state._replace(clients=join_stacks(setting, clients))
        resident = join_stacks(setting, self._resident_ids(call))
        # `state` is donated: the clients of `call` are gone after this line.
        state, metrics = self.compiled(state, train, count, resident)
        # JAX returns before the rounds have run, so what follows costs them no time.
        # The call before is written before the next one is read: else a client of
        # those two, but not of this one, would be read as it was before both.
        self.settle()
        pages = [
            page._replace(clients=clients)
            for page, clients in zip(
                call.pages, split_stacks(setting, state.clients), strict=True
            )
        ]
        self.latest = call._replace(round=done + count, pages=pages)
        self.written = False
        self.coming = None
        if ahead:
            self.coming = self._read(state, train, done + count, ahead)
        return state._replace(clients=()), metrics

    def rounds_ahead(self) -> int:
        """See `DevicePopulation`."""
        return self.coming.rounds if self.coming else 0

    def states(self, state: RunState, ids: np.ndarray) -> Any:
        """See `DevicePopulation`; `state` is the newest one."""
        self.settle()
        setting = self.programs.setting
        group = 0 if setting.groups is None else int(setting.groups.of(ids[0]))
        size = mesh.round_up(len(ids), setting.mesh)
        return self.stacks[group].load(ids, size, np.arange(len(ids)))

    def save(self, round_: int, write: Callable[..., Any]) -> None:
        """See `DevicePopulation`."""
        # The order is what a kill relies on: states in the stores, the checkpoint
        # before committed and its leftovers freed, the stores on disk, and only then
        # the checkpoint. A checkpoint without its states cannot come to be.
        self.settle()
        self.commit()
        checksums = [stack.store.save(round_) for stack in self.stacks]
        kept = self.kept(round_)
        several = self.programs.setting.groups is not None
        self.saving = write(clients=checksums if several else checksums[0]), kept

    def settle(self) -> None:
        """Writes to the stores what they lack of the rounds that have run."""
        if self.written or self.latest is None:
            return
        # Until a checkpoint is committed, a kill goes back to an older one: what that
        # needs must not be written over.
        self.commit()
        for stack, page in zip(self.stacks, self.latest.pages, strict=True):
            stack.write(self.latest.round, page)
        self.written = True

    def commit(self) -> None:
        """Waits for the checkpoint begun last, and frees what it replaces."""
        if self.saving is None:
            return
        response, rounds = self.saving
        if response is not None:
            response.result()
        for stack in self.stacks:
            stack.store.keep(rounds)
        self.saving = None

    def _read(
        self, state: RunState, train: ClientData, round_: int, count: int
    ) -> Call:
        """Loads the clients of these rounds except for those that `latest` has."""
        ids = self._clients(state, train, round_, count)
        members = split_ids(self.programs.setting, ids)
        stacks = zip(self.stacks, members, self._newest(), strict=True)
        pages = [stack.read(ids, newest) for stack, ids, newest in stacks]
        return Call(round=round_, rounds=count, pages=pages)

    def _clients(
        self, state: RunState, train: ClientData, round_: int, count: int
    ) -> np.ndarray:
        """The clients whose states these rounds need, i64[n], ascending."""
        key = self.stacks[0].key
        if self.asynchronous is not None:
            return self.asynchronous.clients(key, train, round_, count)
        cohorts = self.programs.cohorts(state.selection, key, np.int32(round_))
        # The program draws a fixed number of rounds: those past the call do not count.
        drawn = np.asarray(cohorts)[:count]
        ids = np.unique(drawn).astype(np.int64)
        # An empty place has the number after the last client's.
        return ids[ids < self.programs.num_clients]

    def _newest(self) -> list[Any]:
        """The pages of `latest` by stack; None before the first call."""
        return self.latest.pages if self.latest else [None] * len(self.stacks)

    def _resident_ids(self, call: Call) -> list[np.ndarray]:
        """i32[U] by stack, ascending: the ids of the call, then numbers of nobody."""
        resident = []
        for stack, page in zip(self.stacks, call.pages, strict=True):
            empty = stack.programs.resident - len(page.ids)
            nobody = self.programs.num_clients + np.arange(empty)
            resident.append(np.concatenate([page.ids, nobody]).astype(np.int32))
        return resident


Population: TypeAlias = DevicePopulation | StoredPopulation
