"""Clients whose states stay on the devices, in `RunState.clients`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pfljax.core import tree
from pfljax.core.types import ClientData, Metrics, RunState
from pfljax.engine.setting import Groups


@dataclass(frozen=True)
class DevicePopulation:
    """Runs rounds, and reads and saves the states of clients, all on the devices.

    `pfljax.engine.offload.StoredPopulation` has the same functions, with a store.
    """

    compiled: Callable[..., Any]  # engine.compile_rounds
    groups: Groups | None = None  # of architectures; None for one

    def rounds(
        self,
        state: RunState,
        train: ClientData,
        count: int,
        ahead: int = 0,
    ) -> tuple[RunState, Metrics]:
        """(the state after `count` more rounds, metrics by round); donates `state`.

        The next call is expected to have `ahead` rounds; clients may be read for it.
        """
        return self.compiled(state, train, count)

    def rounds_ahead(self) -> int:
        """Number of rounds of the next call whose clients have been read already."""
        return 0

    def states(self, state: RunState, ids: np.ndarray) -> Any:
        """The states of these clients after the rounds of `state`, stacked.

        All have the same architecture. Further entries are padding.
        """
        num_clients = state.participations.shape[0]
        clients, rows, count = state.clients, ids, num_clients
        if self.groups is not None:
            group = int(self.groups.of(ids[0]))
            clients = state.clients[group]
            rows = self.groups.rows(ids)
            count = len(self.groups.members(group, num_clients))
        if len(ids) == count:  # all clients, without a copy
            return clients
        return _take(clients, rows)

    def save(self, round_: int, write: Callable[..., Any]) -> None:
        """Saves the states for a checkpoint of this round, then calls `write`.

        `write` takes the checksum of the states in stores as `clients`.
        """
        write()

    def commit(self) -> None:
        """Waits until the last checkpoint is complete."""


_take = jax.jit(tree.take)
