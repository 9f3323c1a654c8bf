"""Rounds of a population whose states lie in a store: rows come and go between calls.

The cohorts of the coming rounds follow from the seed. Their clients' states are put on
the devices, the rounds run in one call, and the states go back. While a call runs, the
states of the call before are written, and those of the next one read:

    load (next)   from the store, or first states of clients that it has not met
    carry         what both calls need, from device to device
    rounds        dispatched; then write (before), load (next)

Nothing here takes time or memory in proportion to the number of clients, and no bit of
a run depends on it: keys derive from client ids.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.types import Array, ClientData, Key, RunState, Task
from pfljax.engine import Setting, mesh
from pfljax.engine.paging import records
from pfljax.engine.paging.records import Layout, Store
from pfljax.engine.rounds import FAR
from pfljax.engine.state import INIT_BLOCK, first_params

RESIDENT_BYTES = 2**27  # of client states on the devices in one call, if a round fits
FILL_BYTES = 2**24  # of first states made at once
BLOCK = 4096  # clients judged in one call, if their states fit


class Programs(NamedTuple):
    """What is compiled for a population in a store; shared by all seeds."""

    drawn: Callable[[Key, Any], Array]  # (key, round) -> coming cohorts, i32[R, M]
    params: Callable[[Key], Any]  # the first parameters
    fill: Callable[..., Any]  # (clients, params, key, ids, places, count) -> clients
    carry: Callable[..., Any]  # (clients, older clients, from, to) -> clients
    layout: Layout
    where: Any  # shardings of stacked clients
    num_clients: int
    resident: int  # U, states on the devices in a call
    first: int  # first states made at once
    rows: Callable[[int], int]  # stacked states up to equal blocks of the devices


def client_shape(setting: Setting, task: Task) -> Any:
    """The state of a client, as shapes."""

    def one(key: Key) -> Any:
        params = task.init(derive(key, "params"))
        return engine.init_client(setting.algorithm, params, jnp.int32(0), key)

    return jax.eval_shape(one, jax.eval_shape(jax.random.key, 0))


def make_params(setting: Setting, task: Task) -> Callable[[Key], Any]:
    """A jitted function key -> the first parameters, on every device of the mesh."""
    everywhere = _where(setting, ()).round
    return jax.jit(lambda key: first_params(task, key), out_shardings=everywhere)


def _where(setting: Setting, client: Any) -> RunState:
    """Shardings of a state with these clients."""
    leaf: Any = 0
    state = RunState(
        key=leaf,
        round=leaf,
        server=leaf,
        clients=client,
        participations=leaf,
        cohort=leaf,
        selection=leaf,
        channel=leaf,
    )
    return mesh.shardings(setting.mesh, state)


def longest(setting: Setting, client: Any, num_clients: int, wanted: int) -> int:
    """Rounds of one call, at most `wanted`, whose clients' states fit."""
    nbytes = tree.nbytes(client)
    if num_clients * nbytes <= RESIDENT_BYTES:
        return wanted
    fit = RESIDENT_BYTES // (setting.selection.cohort * nbytes)
    return max(1, min(wanted, fit))


def block(client: Any) -> int:
    """Clients judged in one call, wherever their states are: its bits may differ."""
    return _fitting(RESIDENT_BYTES, tree.nbytes(client), BLOCK)


def programs(
    setting: Setting, task: Task, client: Any, num_clients: int, rounds: int
) -> Programs:
    """The compiled parts, for calls of at most `rounds` rounds."""
    algorithm, nbytes = setting.algorithm, tree.nbytes(client)
    where = _where(setting, client).clients
    jit = functools.partial(jax.jit, donate_argnums=0, out_shardings=where)

    def drawn(key: Key, round_: Array) -> Array:
        coming = round_ + jnp.arange(rounds)
        return jax.lax.map(lambda index: engine.draw(setting, (), key, index), coming)

    def fill(clients, params, key, ids, places, count):
        def make(index, made):
            one = engine.init_client(algorithm, params, ids[index], key)
            return tree.put(made, index, one)

        zeros = jax.tree.map(
            lambda leaf: jnp.zeros((len(ids), *leaf.shape), leaf.dtype), client
        )
        made = jax.lax.fori_loop(0, count, make, zeros)
        return tree.put(clients, places, made)

    def carry(clients, older, rows, places):
        return tree.put(clients, places, tree.take(older, rows))

    def padded(count: int) -> int:
        return mesh.padded(count, setting.mesh)

    resident = padded(min(rounds * setting.selection.cohort, num_clients))
    return Programs(
        jax.jit(drawn),
        make_params(setting, task),
        jit(fill),
        jit(carry),
        records.layout(client),
        where,
        num_clients,
        resident,
        _fitting(FILL_BYTES, nbytes, INIT_BLOCK, num_clients),
        padded,
    )


def _fitting(room: int, nbytes: int, *counts: int) -> int:
    return max(1, min(room // max(1, nbytes), *counts))


class Call(NamedTuple):
    """The clients of one call."""

    round: int  # finished before it; of a call that has run, after it
    rounds: int  # in it
    ids: np.ndarray  # i64[n], ascending
    clients: Any  # their stacked states, U rows


@dataclass
class Stream:
    """A population in a store, and what is on its way."""

    programs: Programs
    compiled: Callable[..., Any]  # engine.compile_rounds
    store: Store
    key: Key  # the run's
    params: Any  # the first ones
    kept: Callable[[int], list[int]]  # checkpoints that stay when this round is saved
    latest: Call | None = None  # has run; its states are the newest
    written: bool = True  # and the store has them
    coming: Call | None = None  # read ahead; what `latest` holds is still missing
    saving: tuple[Any, list[int]] | None = None  # a checkpoint on its way

    def rounds(
        self, state: RunState, train: ClientData, count: int, ahead: int = 0
    ) -> Any:
        """(state, metrics) as `engine.rounds`; reads on for `ahead` more rounds."""
        done, call = int(state.round), self.coming
        if call is None or (call.round, call.rounds) != (done, count):
            call = self._prepare(done, count)
        num_clients, resident = self.programs.num_clients, self.programs.resident
        nobody = num_clients + np.arange(resident - len(call.ids))
        ids = np.concatenate([call.ids, nobody]).astype(np.int32)
        state = state._replace(clients=self._carried(call))
        state, metrics = self.compiled(state, train, count, ids)
        self.settle()  # of the call before
        call = call._replace(round=done + count, clients=state.clients)
        self.latest, self.written, self.coming = call, False, None
        if ahead:
            self.coming = self._prepare(done + count, ahead)
        return state._replace(clients=()), metrics

    def planned(self) -> int:
        """The rounds of the next call, if their clients are read already; else 0."""
        return self.coming.rounds if self.coming else 0

    def states(self, ids: np.ndarray) -> Any:
        """The stacked states of these clients, the last ones padding; none is kept."""
        self.settle()
        return self._load(ids, self.programs.rows(len(ids)))

    def save(self, round_: int, write: Callable[[], Any]) -> None:
        """Runs `write`, which saves a checkpoint."""
        self.settle()
        self.committed()
        self.store.save(round_)
        kept = self.kept(round_)
        self.saving = write(), kept

    def settle(self) -> None:
        """Writes to the store what it lacks of the rounds that have run."""
        if self.written or self.latest is None:
            return
        self.committed()
        round_, _, ids, clients = self.latest
        packed = records.pack(self.programs.layout, clients, len(ids))
        self.store.write(round_, ids, packed)
        self.written = True

    def committed(self) -> None:
        """Waits for the checkpoint that is on its way."""
        if self.saving is not None:
            response, rounds = self.saving
            if response is not None:
                response.result()
            self.store.keep(rounds)
            self.saving = None

    def _prepare(self, round_: int, count: int) -> Call:
        """Loads the clients of these rounds but for those that `latest` holds."""
        drawn = np.asarray(self.programs.drawn(self.key, np.int32(round_)))
        ids = np.unique(drawn[:count]).astype(np.int64)
        ids = ids[ids < self.programs.num_clients]  # not an empty place
        held = self.latest.ids if self.latest else ids[:0]
        there = np.isin(ids, held, assume_unique=True)
        clients = self._load(ids, self.programs.resident, ~there)
        return Call(round_, count, ids, clients)

    def _carried(self, call: Call) -> Any:
        """The call's clients, with the states that `latest` holds."""
        if self.latest is None:
            return call.clients
        same = np.intersect1d(
            self.latest.ids, call.ids, assume_unique=True, return_indices=True
        )
        count = len(same[0])
        if not count:
            return call.clients
        rows, places = np.full((2, self.programs.resident), FAR, np.int32)
        rows[:count], places[:count] = same[1:]
        return self.programs.carry(call.clients, self.latest.clients, rows, places)

    def _load(self, ids: np.ndarray, size: int, wanted: Any = slice(None)) -> Any:
        """`size` stacked states on the devices, the first those of the wanted `ids`."""
        programs = self.programs
        places = np.arange(len(ids))[wanted]
        found, there = self.store.read(ids[wanted])
        packed = np.zeros((size, programs.layout.nbytes), np.uint8)
        packed[places] = found
        unpacked = records.unpack(programs.layout, packed)
        clients = jax.device_put(unpacked, programs.where)
        new = places[~there]
        for start in range(0, len(new), programs.first):
            some = new[start : start + programs.first]
            rows = np.full((2, programs.first), FAR, np.int32)
            rows[0, : len(some)], rows[1, : len(some)] = ids[some], some
            count = np.int32(len(some))
            clients = programs.fill(clients, self.params, self.key, *rows, count)
        return clients
