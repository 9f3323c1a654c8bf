"""The states of one stack of clients, between its store and the devices.

A shelf knows no rounds: `pfljax.engine.paging.pages` says when what is read, and is
written.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax.core.types import Key
from pfljax.engine.paging import records
from pfljax.engine.paging.programs import OfStack
from pfljax.engine.paging.records import Store
from pfljax.engine.plan import FAR


class Page(NamedTuple):
    """Clients of one stack that are on the devices."""

    ids: np.ndarray  # i64[n], ascending
    clients: Any  # their stacked states, U rows


@dataclass
class Shelf:
    """The clients of one stack."""

    programs: OfStack
    store: Store  # of its members, by their place among them
    key: Key  # the run's
    params: Any  # the first ones

    def page(self, ids: np.ndarray, newest: Page | None) -> Page:
        """These clients, but for the states of those that `newest` has."""
        rows = np.arange(len(ids))
        if newest is not None:
            is_newest = np.isin(ids, newest.ids, assume_unique=True)
            rows = np.flatnonzero(~is_newest)
        return Page(ids, self.load(ids, self.programs.resident, rows))

    def carried(self, page: Page, newest: Page | None) -> Any:
        """The page's clients, with the states that `newest` has."""
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
            _filled(from_rows, self.programs.resident),
            _filled(to_rows, self.programs.resident),
        )

    def write(self, round_: int, page: Page) -> None:
        """Writes the page, which is of after so many rounds, to the store."""
        if not len(page.ids):  # nobody of this stack was drawn
            return
        packed = records.pack(self.programs.layout, page.clients, len(page.ids))
        self.store.write(round_, self._places(page.ids), packed)

    def load(self, ids: np.ndarray, size: int, rows: np.ndarray) -> Any:
        """`size` stacked states on the devices; of `ids`, those at `rows` are right."""
        programs = self.programs
        stored, met = self.store.read(self._places(ids[rows]))
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

    def _places(self, ids: np.ndarray) -> np.ndarray:
        """Where these clients stand among the members, i64[n]."""
        return np.searchsorted(self.programs.members, ids)


def _filled(rows: np.ndarray, size: int) -> np.ndarray:
    """i32[size]: `rows`, then rows past the end, which are not written."""
    # Always of one size: another would be another program.
    filled = np.full(size, FAR, np.int32)
    filled[: len(rows)] = rows
    return filled
