"""Rounds of clients whose states lie in a store, on the devices only for a call.

The cohorts of the coming rounds follow from the seed, and from what the selection has
learned. The states of these clients are put on the devices, the rounds run in one call,
and the states go back. While a call runs, the states of the call before are written,
and those of the next one are read:

    load (next)   from the store, or first states of clients that never took part
    carry         states that both calls need, from device to device
    rounds        dispatched; then write (before), load (next)

Clients of several architectures have a store for each, and a page in every call.
Neither time nor memory grows with the number of clients, so that a million of them fit
on one device. Results are the same to the bit, since keys derive from client ids.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from pfljax.core.types import ClientData, Key, Metrics, RunState
from pfljax.engine import mesh
from pfljax.engine.asynchronous import AsyncRounds
from pfljax.engine.disk_store import DiskStore
from pfljax.engine.host_store import HostStore
from pfljax.engine.offload_programs import Programs, StackPrograms
from pfljax.engine.plan import FAR
from pfljax.engine.population import DevicePopulation
from pfljax.engine.records import pack, unpack
from pfljax.engine.state import join_stacks, split_ids, split_stacks


class Page(NamedTuple):
    """Clients of one stack that are on the devices."""

    ids: np.ndarray  # i64[n], ascending
    clients: Any  # their stacked states, U rows


@dataclass
class StoredStack:
    """The clients of one stack, between their store and the devices."""

    programs: StackPrograms
    store: HostStore | DiskStore  # of its members, by their index
    key: Key  # the run's
    params: Any  # the first ones

    def read(self, ids: np.ndarray, newest: Page | None) -> Page:
        """Reads the states of these clients, except for those that are in `newest`."""
        rows = np.arange(len(ids))
        if newest is not None:
            is_newest = np.isin(ids, newest.ids, assume_unique=True)
            rows = np.flatnonzero(~is_newest)
        return Page(ids, self.load(ids, self.programs.resident, rows))

    def carry(self, page: Page, newest: Page | None) -> Any:
        """The clients of a page, with the states of those that are in `newest`."""
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
        if len(page.ids):  # perhaps no client of this stack was drawn
            records = pack(self.programs.layout, page.clients, len(page.ids))
            self.store.write(round_, self._indices(page.ids), records)

    def load(self, ids: np.ndarray, size: int, rows: np.ndarray) -> Any:
        """`size` stacked states on the devices; only those of `ids[rows]` are read."""
        programs = self.programs
        stored, exist = self.store.read(self._indices(ids[rows]))
        records = np.zeros((size, programs.layout.nbytes), np.uint8)
        records[rows] = stored
        states = unpack(programs.layout, records)
        clients = jax.device_put(states, programs.sharding)
        new = rows[~exist]
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

    def _indices(self, ids: np.ndarray) -> np.ndarray:
        """The indices of these clients among the members, i64[n]."""
        return np.searchsorted(self.programs.members, ids)


def _fill_up(rows: np.ndarray, size: int) -> np.ndarray:
    """i32[size]: `rows`, then numbers past the end, where nothing is written."""
    # Always of one size, since another size would be another program.
    filled = np.full(size, FAR, np.int32)
    filled[: len(rows)] = rows
    return filled


class Call(NamedTuple):
    """The clients of one call."""

    round: int  # number of rounds before it, or after it once it has run
    rounds: int  # number of its rounds
    pages: list[Page]  # by stack


@dataclass
class StoredPopulation:
    """Clients in stores, with the functions of `DevicePopulation`."""

    programs: Programs
    compiled: Callable[..., Any]  # engine.compile_rounds
    stacks: list[StoredStack]
    kept: Callable[[int], list[int]]  # checkpoints that stay when this round is saved
    asynchronous: AsyncRounds | None = None  # which know the clients of each round
    latest: Call | None = None  # the last call that has run, with the newest states
    written: bool = True  # whether the stores have them
    coming: Call | None = None  # read ahead, without the states that `latest` has
    saving: tuple[Any, list[int]] | None = None  # a checkpoint that is being written

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
        # `state` is donated, so the clients of `call` are gone after this line.
        state, metrics = self.compiled(state, train, count, resident)
        # JAX returns before the rounds have run, so the rest happens at the same time.
        # The call before is written before the next one is read: otherwise a client of
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
        # The order makes a kill harmless: states in the stores, the checkpoint before
        # committed and its leftovers freed, the stores flushed, and only then the
        # checkpoint. There is never a checkpoint without its states.
        self.settle()
        self.commit()
        checksums = [stack.store.save(round_) for stack in self.stacks]
        kept = self.kept(round_)
        several = self.programs.setting.groups is not None
        self.saving = write(clients=checksums if several else checksums[0]), kept

    def settle(self) -> None:
        """Writes the newest states to the stores."""
        if self.written or self.latest is None:
            return
        # Until a checkpoint is committed, a kill goes back to an older one, whose
        # records must not be overwritten.
        self.commit()
        for stack, page in zip(self.stacks, self.latest.pages, strict=True):
            stack.write(self.latest.round, page)
        self.written = True

    def commit(self) -> None:
        """Waits for the last checkpoint, and frees the records that it replaces."""
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
        """Loads the clients of these rounds, except for those that `latest` has."""
        ids = self._clients(state, train, round_, count)
        members = split_ids(self.programs.setting, ids)
        stacks = zip(self.stacks, members, self._newest(), strict=True)
        pages = [stack.read(ids, newest) for stack, ids, newest in stacks]
        return Call(round=round_, rounds=count, pages=pages)

    def _clients(
        self, state: RunState, train: ClientData, round_: int, count: int
    ) -> np.ndarray:
        """The clients of these rounds, i64[n], ascending."""
        key = self.stacks[0].key
        if self.asynchronous is not None:
            return self.asynchronous.clients(key, train, round_, count)
        cohorts = self.programs.cohorts(state.selection, key, np.int32(round_))
        # The program draws a fixed number of rounds, perhaps more than the call has.
        drawn = np.asarray(cohorts)[:count]
        ids = np.unique(drawn).astype(np.int64)
        # An empty place has the number after the last client's.
        return ids[ids < self.programs.num_clients]

    def _newest(self) -> list[Any]:
        """The pages of `latest` by stack, or None before the first call."""
        return self.latest.pages if self.latest else [None] * len(self.stacks)

    def _resident_ids(self, call: Call) -> list[np.ndarray]:
        """i32[U] by stack, ascending: ids of the call, then numbers past the end."""
        resident = []
        for stack, page in zip(self.stacks, call.pages, strict=True):
            empty = stack.programs.resident - len(page.ids)
            past_end = self.programs.num_clients + np.arange(empty)
            resident.append(np.concatenate([page.ids, past_end]).astype(np.int32))
        return resident


Population: TypeAlias = DevicePopulation | StoredPopulation
