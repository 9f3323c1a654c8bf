"""Asynchronous rounds as a run calls them: events on the host, training on the device.

The order of events is computed anew from the seed wherever a run goes on, so that no
checkpoint holds it. It has no end: a run may get more rounds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.training import budget
from pfljax.core.types import Array, ClientData, Key, Metrics, RunState
from pfljax.engine import events
from pfljax.engine.events import Draws, Job, Version
from pfljax.engine.plan import draw, round_key
from pfljax.engine.setting import Setting
from pfljax.engine.versions import Jobs, Window, rounds

BLOCK = 64  # cohorts that are drawn in one call


@dataclass
class Schedule:
    """The events of one run, and how many of its versions were taken."""

    owner: bytes  # what they follow from
    versions: Iterator[Version]
    taken: int = 0
    time: float = 0.0  # of the last that was taken
    ahead: list[Version] = field(default_factory=list)  # read, and not taken yet

    def peek(self, count: int) -> list[Version]:
        """The next versions, which are taken later."""
        while len(self.ahead) < count:
            self.ahead.append(next(self.versions))
        return self.ahead[:count]

    def take(self, count: int) -> list[Version]:
        """The next versions."""
        versions = self.peek(count)
        del self.ahead[:count]
        if versions:
            self.time = versions[-1].time
        self.taken += count
        return versions


@dataclass
class AsyncRounds:
    """A program (state, train, count, resident, public), as `engine.compile_rounds`.

    Its metrics have the virtual times as well, f64, and the turns of each round.
    """

    setting: Setting
    at_most: int
    program: Any
    drawn: Any  # (key, sizes, first cohort) -> ids and steps of a block of cohorts
    newest: list[Schedule] = field(default_factory=list)  # that of the last call

    def __call__(
        self,
        state: RunState,
        train: ClientData,
        count: int,
        resident: Any = None,
        public: ClientData | None = None,
    ) -> tuple[RunState, Metrics]:
        """(the state after `count` more rounds, metrics by round); donates `state`.

        `resident` is that of `engine.one_round`, with all of `clients`.
        """
        mode, _ = _parts(self.setting)
        schedule = self._schedule(state.key, train, int(state.round))
        time = schedule.time
        coming = schedule.take(int(count) * mode.versions)
        window = self._window(coming, train.size.shape[0], resident)
        after, metrics = self.program(state, train, window, count, public)
        return after, metrics | _describe(coming, mode.versions, time)

    def clients(self, key: Key, train: ClientData, done: int, count: int) -> np.ndarray:
        """Whose states `count` rounds after round `done` read or write, i64[n]."""
        mode, _ = _parts(self.setting)
        schedule = self._schedule(key, train, done)
        ids = []
        for version in schedule.peek(count * mode.versions):
            ids += [job.client for job in (*version.started, *version.flushed)]
        return np.unique(np.array(ids, np.int64))

    def lower(
        self,
        state: Any,
        train: Any,
        count: Any,
        resident: Any = None,
        public: Any = None,
    ) -> Any:
        """The program lowered for these shapes, as that of a jitted function."""
        window = self._window([], train.size.shape[0], None)
        return self.program.lower(state, train, window, count, public)

    def _schedule(self, key: Key, train: ClientData, done: int) -> Schedule:
        """The events of this run, those of `done` rounds taken."""
        mode, _ = _parts(self.setting)
        before = done * mode.versions
        schedule = self._begin(key, np.asarray(train.size), before)
        # A run that goes on meets the events before it once more.
        schedule.take(before - schedule.taken)
        return schedule

    def _begin(self, key: Key, size: np.ndarray, done: int) -> Schedule:
        """The events of this run, at `done` versions or before them."""
        seed = np.asarray(jax.random.key_data(key))
        owner = seed.tobytes() + size.tobytes()
        for schedule in self.newest:
            if schedule.owner == owner and schedule.taken <= done:
                return schedule
        mode, clock = _parts(self.setting)
        # The state's own is donated to the first call; cohorts are drawn later, too.
        bits = jnp.asarray(seed)
        key = jax.random.wrap_key_data(bits, impl=jax.random.key_impl(key))
        versions = events.versions(
            clock,
            self._cohorts(key, size),
            Draws.of(seed.ravel().tolist()),
            self.setting.selection.cohort,
            mode.buffer,
        )
        self.newest[:] = [Schedule(owner, versions)]
        return self.newest[0]

    def _cohorts(self, key: Key, size: np.ndarray) -> events.Cohorts:
        """Cohort after cohort, as synchronous rounds draw them."""
        first = 0
        while True:
            ids, steps = jax.device_get(self.drawn(key, size, first))
            yield from zip(ids, steps, strict=True)
            first += BLOCK

    def _window(
        self, versions: list[Version], num_clients: int, resident: np.ndarray | None
    ) -> Window:
        """The events of a call as arrays of the shapes that the program has."""
        mode, _ = _parts(self.setting)
        length = self.at_most * mode.versions
        slots = mode.slots(self.setting.selection.cohort, num_clients)
        # Whoever is in a slot before the call, and one more for each upload.
        jobs = np.zeros((5, slots + length * mode.buffer), np.int32)
        taken = np.zeros((4, length, mode.buffer), np.int32)
        count = len(versions)
        started = []
        first = np.zeros(length + 1, np.int32)  # of the starts of each version
        for index, version in enumerate(versions):
            # The longest first, so that a chunk's lanes finish together.
            started += sorted(version.started, key=lambda job: -job.steps)
            first[index + 1] = len(started)
        first[count + 1 :] = len(started)
        clients = _ids(started)
        jobs[:2, : len(started)] = clients, _rows(clients, resident)
        for column, name in enumerate(("draw", "steps", "slot"), start=2):
            jobs[column, : len(started)] = [getattr(job, name) for job in started]
        flushed = [job for version in versions for job in version.flushed]
        clients = _ids(flushed)
        slot = np.array([job.slot for job in flushed], np.int64)
        staleness = [tau for version in versions for tau in version.staleness]
        stale = np.array(staleness, np.int64)
        of_jobs = np.stack([slot, clients, _rows(clients, resident), stale])
        taken[:, :count] = of_jobs.reshape(4, count, mode.buffer)
        return Window(Jobs(*jobs), first, *taken)


def compile_rounds(setting: Setting, at_most: int) -> AsyncRounds:
    """The asynchronous rounds of a setting, at most so many in a call."""

    def draw_rounds(key: Key, size: Array, first: Array) -> tuple[Array, Array]:
        learned = setting.selection.init()

        def draw_cohort(index: Array) -> tuple[Array, Array]:
            ids = draw(setting, learned, key, index)
            work_key = derive(round_key(key, index), "work")
            full = budget(setting.local, tree.take(size, ids))
            steps, _ = setting.selection.work(learned, work_key, ids, full)
            return ids, steps

        return jax.lax.map(draw_cohort, first + jnp.arange(BLOCK))

    return AsyncRounds(
        setting=setting,
        at_most=at_most,
        program=jax.jit(partial(rounds, setting, at_most), donate_argnums=0),
        drawn=jax.jit(draw_rounds),
    )


def _ids(jobs: list[Job]) -> np.ndarray:
    """The client of each, i64[n]."""
    return np.array([job.client for job in jobs], np.int64)


def _rows(clients: np.ndarray, resident: np.ndarray | None) -> np.ndarray:
    """The rows of clients' states: their numbers, or places among the resident."""
    return clients if resident is None else np.searchsorted(resident, clients)


def _describe(versions: list[Version], of_round: int, time: float) -> dict[str, Any]:
    """What the log has of each round: its seconds, bytes sent, staleness, turns."""
    history: dict[str, list[Any]] = {}

    def tell(**values: Any) -> None:
        for name, value in values.items():
            history.setdefault(name, []).append(value)

    for first in range(0, len(versions), of_round):
        of_this = versions[first : first + of_round]
        jobs = [job for version in of_this for job in version.flushed]
        staleness = [tau for version in of_this for tau in version.staleness]
        tell(
            seconds=of_this[-1].time - time,
            asked=sum(len(version.started) for version in of_this),
            reported=len(jobs),
            staleness=np.mean(staleness),
            turn_client=[job.client for job in jobs],
            turn_start=[job.start for job in jobs],
            turn_seconds=[job.end - job.start for job in jobs],
            turn_reported=[1.0] * len(jobs),
        )
        time = of_this[-1].time
    return {name: np.asarray(values) for name, values in history.items()}


def _parts(setting: Setting) -> tuple[Any, Any]:
    """The mode and the clock, which asynchronous rounds have."""
    assert setting.mode is not None
    assert setting.clock is not None
    return setting.mode, setting.clock
