"""Rounds of a population whose states lie in a store: rows come and go between calls.

The cohorts of the coming rounds follow from the seed, and from what the selection has
learned. Their clients' states are put on the devices, the rounds run in one call, and
the states go back. While a call runs, the states of the call before are written, and
those of the next one read:

    load (next)   from the store, or first states of clients that it has not met
    carry         what both calls need, from device to device
    rounds        dispatched; then write (before), load (next)

Nothing here takes time or memory in proportion to the number of clients, and no bit of
a run depends on it: keys derive from client ids.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax.core.types import ClientData, Key, Metrics, RunState
from pfljax.engine.paging import records
from pfljax.engine.paging.programs import Programs
from pfljax.engine.paging.records import Store
from pfljax.engine.plan import FAR


class Call(NamedTuple):
    """The clients of one call."""

    round: int  # finished before it; of a call that has run, after it
    rounds: int  # in it
    ids: np.ndarray  # i64[n], ascending
    clients: Any  # their stacked states, U rows


@dataclass
class PagedPopulation:
    """A `pfljax.engine.population.Population` in a store, and what is on its way."""

    programs: Programs
    compiled: Callable[..., Any]  # engine.compile_rounds
    store: Store
    key: Key  # the run's
    params: Any  # the first ones
    kept: Callable[[int], list[int]]  # checkpoints that stay when this round is saved
    latest: Call | None = None  # has run; its states are the newest
    written: bool = True  # and the store has them
    coming: Call | None = None  # read ahead; what `latest` has is still missing
    saving: tuple[Any, list[int]] | None = None  # a checkpoint on its way

    def rounds(
        self, state: RunState, train: ClientData, count: int, ahead: int = 0
    ) -> tuple[RunState, Metrics]:
        """As `engine.rounds`; reads the clients of `ahead` more rounds meanwhile."""
        done = int(state.round)
        call = self.coming
        if call is None or (call.round, call.rounds) != (done, count):
            call = self._prepare(state.selection, done, count)
        state = state._replace(clients=self._carried(call))
        # `state` is donated: `call.clients` is gone after this line.
        state, metrics = self.compiled(state, train, count, self._resident_ids(call))
        # JAX returns before the rounds have run, so what follows costs them no time.
        # The call before is written before the next one is read: else a client of
        # those two, but not of this one, would be read as it was before both.
        self.settle()
        self.latest = call._replace(round=done + count, clients=state.clients)
        self.written = False
        self.coming = None
        if ahead:
            self.coming = self._prepare(state.selection, done + count, ahead)
        return state._replace(clients=()), metrics

    def planned(self) -> int:
        """Rounds of the next call, if their clients are read already; else 0."""
        return self.coming.rounds if self.coming else 0

    def states(self, state: RunState, ids: np.ndarray) -> Any:
        """The stacked states of these clients; rows behind them are padding.

        `state` must be the newest, for the store has no other.
        """
        self.settle()
        size = self.programs.padded(len(ids))
        return self._load(ids, size, np.arange(len(ids)))

    def save(self, round_: int, write: Callable[..., Any]) -> None:
        """Runs `write`, which begins a checkpoint, after the store has its part."""
        # The order is what a kill relies on: states in the store, the checkpoint before
        # committed and its leftovers freed, the store on disk, and only then the
        # checkpoint. A checkpoint without its states cannot come to be.
        self.settle()
        self.committed()
        checksum = self.store.save(round_)
        kept = self.kept(round_)
        self.saving = write(clients=checksum), kept

    def settle(self) -> None:
        """Writes to the store what it lacks of the rounds that have run."""
        if self.written or self.latest is None:
            return
        # Until a checkpoint is committed, a kill goes back to an older one: what that
        # needs must not be written over.
        self.committed()
        call = self.latest
        packed = records.pack(self.programs.layout, call.clients, len(call.ids))
        self.store.write(call.round, call.ids, packed)
        self.written = True

    def committed(self) -> None:
        """Waits for the checkpoint that is on its way, and frees what it replaces."""
        if self.saving is None:
            return
        response, rounds = self.saving
        if response is not None:
            response.result()
        self.store.keep(rounds)
        self.saving = None

    def _prepare(self, selection_state: Any, round_: int, count: int) -> Call:
        """Loads the clients of these rounds but for those that `latest` has."""
        programs = self.programs
        first_round = np.int32(round_)
        cohorts = programs.cohorts(selection_state, self.key, first_round)
        # The program draws a fixed number of rounds: those past the call do not count.
        drawn = np.asarray(cohorts)[:count]
        ids = np.unique(drawn).astype(np.int64)
        # An empty place has the number after the last client's.
        ids = ids[ids < programs.num_clients]
        rows = self._rows_to_load(ids)
        return Call(
            round=round_,
            rounds=count,
            ids=ids,
            clients=self._load(ids, programs.resident, rows),
        )

    def _rows_to_load(self, ids: np.ndarray) -> np.ndarray:
        """Where in `ids` those clients stand that `latest` does not have, i64[n]."""
        if self.latest is None:
            return np.arange(len(ids))
        is_newest = np.isin(ids, self.latest.ids, assume_unique=True)
        return np.flatnonzero(~is_newest)

    def _resident_ids(self, call: Call) -> np.ndarray:
        """i32[U], ascending: the ids of the call, then numbers of nobody."""
        empty = self.programs.resident - len(call.ids)
        nobody = self.programs.num_clients + np.arange(empty)
        return np.concatenate([call.ids, nobody]).astype(np.int32)

    def _carried(self, call: Call) -> Any:
        """The call's clients, with the states that `latest` has."""
        if self.latest is None:
            return call.clients
        _, from_rows, to_rows = np.intersect1d(
            self.latest.ids, call.ids, assume_unique=True, return_indices=True
        )
        if not len(from_rows):
            return call.clients
        return self.programs.carry(
            call.clients,
            self.latest.clients,
            _filled(from_rows, self.programs.resident),
            _filled(to_rows, self.programs.resident),
        )

    def _load(self, ids: np.ndarray, size: int, rows: np.ndarray) -> Any:
        """`size` stacked states on the devices; of `ids`, those at `rows` are right."""
        programs = self.programs
        stored, met = self.store.read(ids[rows])
        packed = np.zeros((size, programs.layout.nbytes), np.uint8)
        packed[rows] = stored
        unpacked = records.unpack(programs.layout, packed)
        clients = jax.device_put(unpacked, programs.sharding)
        new = rows[~met]
        for start in range(0, len(new), programs.fill_size):
            some = new[start : start + programs.fill_size]
            clients = programs.fill(
                clients,
                self.params,
                self.key,
                _filled(ids[some], programs.fill_size),
                _filled(some, programs.fill_size),
                np.int32(len(some)),
            )
        return clients


def _filled(rows: np.ndarray, size: int) -> np.ndarray:
    """i32[size]: `rows`, then rows past the end, which are not written."""
    # Always of one size: another would be another program.
    filled = np.full(size, FAR, np.int32)
    filled[: len(rows)] = rows
    return filled
