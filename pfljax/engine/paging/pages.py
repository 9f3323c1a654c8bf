"""Rounds of a population whose states lie in a store: rows come and go between calls.

The cohorts of the coming rounds follow from the seed, and from what the selection has
learned. Their clients' states are put on the devices, the rounds run in one call, and
the states go back. While a call runs, the states of the call before are written, and
those of the next one read:

    load (next)   from the store, or first states of clients that it has not met
    carry         what both calls need, from device to device
    rounds        dispatched; then write (before), load (next)

Clients of several architectures have a store each, and a page in every call.

Nothing here takes time or memory in proportion to the number of clients, and no bit of
a run depends on it: keys derive from client ids.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pfljax.core.types import ClientData, Metrics, RunState
from pfljax.engine.asynchronous import AsyncRounds
from pfljax.engine.paging.programs import Programs
from pfljax.engine.paging.shelves import Page, Shelf
from pfljax.engine.state import by_stack, joined, parted


class Call(NamedTuple):
    """The clients of one call."""

    round: int  # finished before it; of a call that has run, after it
    rounds: int  # in it
    pages: list[Page]  # by stack


@dataclass
class PagedPopulation:
    """A `pfljax.engine.population.Population` in a store, and what is on its way."""

    programs: Programs
    compiled: Callable[..., Any]  # engine.compile_rounds
    shelves: list[Shelf]  # by stack
    kept: Callable[[int], list[int]]  # checkpoints that stay when this round is saved
    asynchronous: AsyncRounds | None = None  # that know who takes part; None in cohorts
    latest: Call | None = None  # has run; its states are the newest
    written: bool = True  # and the stores have them
    coming: Call | None = None  # read ahead; what `latest` has is still missing
    saving: tuple[Any, list[int]] | None = None  # a checkpoint on its way

    def rounds(
        self, state: RunState, train: ClientData, count: int, ahead: int = 0
    ) -> tuple[RunState, Metrics]:
        """As `engine.rounds`; reads the clients of `ahead` more rounds meanwhile."""
        setting = self.programs.setting
        done = int(state.round)
        call = self.coming
        if call is None or (call.round, call.rounds) != (done, count):
            call = self._prepare(state, train, done, count)
        state = state._replace(clients=joined(setting, self._carried(call)))
        resident = joined(setting, self._resident_ids(call))
        # `state` is donated: the clients of `call` are gone after this line.
        state, metrics = self.compiled(state, train, count, resident)
        # JAX returns before the rounds have run, so what follows costs them no time.
        # The call before is written before the next one is read: else a client of
        # those two, but not of this one, would be read as it was before both.
        self.settle()
        stacks = parted(setting, state.clients)
        pages = zip(call.pages, stacks, strict=True)
        trained = [page._replace(clients=clients) for page, clients in pages]
        self.latest = call._replace(round=done + count, pages=trained)
        self.written = False
        self.coming = None
        if ahead:
            self.coming = self._prepare(state, train, done + count, ahead)
        return state._replace(clients=()), metrics

    def planned(self) -> int:
        """Rounds of the next call, if their clients are read already; else 0."""
        return self.coming.rounds if self.coming else 0

    def states(self, state: RunState, ids: np.ndarray) -> Any:
        """The stacked states of these clients; rows behind them are padding.

        `state` must be the newest, for the stores have no other.
        """
        self.settle()
        groups = self.programs.setting.groups
        shelf = self.shelves[0 if groups is None else int(groups.of(ids[0]))]
        size = self.programs.padded(len(ids))
        return shelf.load(ids, size, np.arange(len(ids)))

    def save(self, round_: int, write: Callable[..., Any]) -> None:
        """Runs `write`, which begins a checkpoint, after the stores have their part."""
        # The order is what a kill relies on: states in the stores, the checkpoint
        # before committed and its leftovers freed, the stores on disk, and only then
        # the checkpoint. A checkpoint without its states cannot come to be.
        self.settle()
        self.committed()
        checksums = [shelf.store.save(round_) for shelf in self.shelves]
        kept = self.kept(round_)
        several = self.programs.setting.groups is not None
        self.saving = write(clients=checksums if several else checksums[0]), kept

    def settle(self) -> None:
        """Writes to the stores what they lack of the rounds that have run."""
        if self.written or self.latest is None:
            return
        # Until a checkpoint is committed, a kill goes back to an older one: what that
        # needs must not be written over.
        self.committed()
        for shelf, page in zip(self.shelves, self.latest.pages, strict=True):
            shelf.write(self.latest.round, page)
        self.written = True

    def committed(self) -> None:
        """Waits for the checkpoint that is on its way, and frees what it replaces."""
        if self.saving is None:
            return
        response, rounds = self.saving
        if response is not None:
            response.result()
        for shelf in self.shelves:
            shelf.store.keep(rounds)
        self.saving = None

    def _prepare(
        self, state: RunState, train: ClientData, round_: int, count: int
    ) -> Call:
        """Loads the clients of these rounds but for those that `latest` has."""
        ids = self._clients(state, train, round_, count)
        members = by_stack(self.programs.setting, ids)
        of_shelves = zip(self.shelves, members, self._newest(), strict=True)
        pages = [shelf.page(ids, newest) for shelf, ids, newest in of_shelves]
        return Call(round=round_, rounds=count, pages=pages)

    def _clients(
        self, state: RunState, train: ClientData, round_: int, count: int
    ) -> np.ndarray:
        """Whose states these rounds need, i64[n], ascending."""
        key = self.shelves[0].key
        if self.asynchronous is not None:
            return self.asynchronous.clients(key, train, round_, count)
        first_round = np.int32(round_)
        cohorts = self.programs.cohorts(state.selection, key, first_round)
        # The program draws a fixed number of rounds: those past the call do not count.
        drawn = np.asarray(cohorts)[:count]
        ids = np.unique(drawn).astype(np.int64)
        # An empty place has the number after the last client's.
        return ids[ids < self.programs.num_clients]

    def _carried(self, call: Call) -> list[Any]:
        """The call's clients by stack, with the states that `latest` has."""
        of_shelves = zip(self.shelves, call.pages, self._newest(), strict=True)
        return [shelf.carried(page, newest) for shelf, page, newest in of_shelves]

    def _newest(self) -> list[Any]:
        """The pages of `latest` by stack; None before the first call."""
        return self.latest.pages if self.latest else [None] * len(self.shelves)

    def _resident_ids(self, call: Call) -> list[np.ndarray]:
        """i32[U] by stack, ascending: the ids of the call, then numbers of nobody."""
        resident = []
        for shelf, page in zip(self.shelves, call.pages, strict=True):
            empty = shelf.programs.resident - len(page.ids)
            nobody = self.programs.num_clients + np.arange(empty)
            resident.append(np.concatenate([page.ids, nobody]).astype(np.int32))
        return resident
