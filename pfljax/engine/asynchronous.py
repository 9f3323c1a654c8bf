"""Asynchronous rounds as a run calls them: events on the host, training on the device.

The order of events is computed again from the seed when a run is resumed, so that no
checkpoint has to hold it. It has no end, since a run may get more rounds.
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
from pfljax.engine.clock import Clock
from pfljax.engine.events import Job, Version, make_draws
from pfljax.engine.modes import Mode
from pfljax.engine.plan import draw, round_key
from pfljax.engine.setting import Setting, count_gradients
from pfljax.engine.versions import Jobs, Window, rounds

BLOCK = 64  # cohorts that are drawn in a call


@dataclass
class Schedule:
    """The events of one run, and the number of its versions that were taken."""

    owner: bytes  # seed and sizes, from which the events follow
    versions: Iterator[Version]
    taken: int = 0
    time: float = 0.0  # of the last version that was taken
    ahead: list[Version] = field(default_factory=list)  # read, but not taken yet

    def peek(self, count: int) -> list[Version]:
        """The next versions, without taking them."""
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

    Its metrics also have virtual times, f64, and the turns of each round.
    """

    setting: Setting
    mode: Mode  # that of the setting; so is the clock
    clock: Clock
    at_most: int
    program: Any
    draw: Any  # (key, sizes, first cohort) -> ids, steps and work of a block of cohorts
    newest: Schedule | None = None  # that of the last call

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
        done = int(state.round)
        window, entries = self.window(state.key, train, done, int(count), resident)
        after, metrics = self.program(state, train, window, count, public)
        return after, metrics | entries

    def window(
        self, key: Key, train: ClientData, done: int, count: int, resident: Any = None
    ) -> tuple[Window, Metrics]:
        """The events of `count` rounds after round `done`, and their log entries."""
        schedule = self._schedule(key, train, done)
        time = schedule.time
        coming = schedule.take(count * self.mode.versions)
        window = self._window(coming, train.size.shape[0], resident)
        return window, _describe(coming, self.mode.versions, time)

    def clients(self, key: Key, train: ClientData, done: int, count: int) -> np.ndarray:
        """The clients whose states `count` rounds after round `done` use, i64[n]."""
        schedule = self._schedule(key, train, done)
        ids = []
        for version in schedule.peek(count * self.mode.versions):
            ids += [job.client for job in (*version.started, *version.flushed)]
        return np.unique(np.array(ids, np.int64))

    def lower(self, state: Any, train: Any, count: Any, public: Any = None) -> Any:
        """The program lowered for these shapes, as by a jitted function."""
        window = self._window([], train.size.shape[0], None)
        return self.program.lower(state, train, window, count, public)

    def _schedule(self, key: Key, train: ClientData, done: int) -> Schedule:
        """The events of this run, those of `done` rounds taken."""
        seed = np.asarray(jax.random.key_data(key))
        size = np.asarray(train.size)
        owner = seed.tobytes() + size.tobytes()
        before = done * self.mode.versions
        schedule = self.newest
        if schedule is None or schedule.owner != owner or schedule.taken > before:
            schedule = Schedule(owner, self._order_events(key, seed, size))
            self.newest = schedule
        # A resumed run goes through the events before it once more.
        schedule.take(before - schedule.taken)
        return schedule

    def _order_events(
        self, key: Key, seed: np.ndarray, size: np.ndarray
    ) -> Iterator[Version]:
        """The versions of a run from the first on."""
        # A copy, since the key of the state is donated to the first call.
        bits = jnp.asarray(seed)
        key = jax.random.wrap_key_data(bits, impl=jax.random.key_impl(key))
        return events.versions(
            self.clock,
            self._cohorts(key, size),
            make_draws(seed.ravel().tolist()),
            self.setting.selection.cohort,
            self.mode.buffer,
        )

    def _cohorts(self, key: Key, size: np.ndarray) -> events.Cohorts:
        """Cohort after cohort, drawn as in synchronous rounds."""
        first = 0
        while True:
            yield from zip(*jax.device_get(self.draw(key, size, first)), strict=True)
            first += BLOCK

    def _window(
        self, versions: list[Version], num_clients: int, resident: np.ndarray | None
    ) -> Window:
        """The events of a call as arrays of the shapes that the program expects."""
        mode = self.mode
        length = self.at_most * mode.versions
        slots = mode.slots(self.setting.selection.cohort, num_clients)
        # The turns in slots before the call, and one more for each upload.
        jobs = np.zeros((5, slots + length * mode.buffer), np.int32)
        taken = np.zeros((4, length, mode.buffer), np.int32)
        count = len(versions)
        started = []
        first = np.zeros(length + 1, np.int32)  # of the jobs of each version
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
    """The asynchronous rounds of a setting, at most `at_most` in a call."""
    assert setting.mode is not None
    assert setting.clock is not None

    def draw_rounds(key: Key, size: Array, first: Array) -> tuple[Array, ...]:
        learned = setting.selection.init()

        def draw_cohort(index: Array) -> tuple[Array, ...]:
            ids = draw(setting, learned, key, index)
            work_key = derive(round_key(key, index), "work")
            examples = tree.take(size, ids)
            full = budget(setting.local, examples)
            steps, _ = setting.selection.work(learned, work_key, ids, full)
            # No method of these modes has other work in a client's first round.
            work = count_gradients(setting, steps, examples, jnp.bool_(False))
            return ids, steps, work

        return jax.lax.map(draw_cohort, first + jnp.arange(BLOCK))

    return AsyncRounds(
        setting=setting,
        mode=setting.mode,
        clock=setting.clock,
        at_most=at_most,
        program=jax.jit(partial(rounds, setting, at_most), donate_argnums=0),
        draw=jax.jit(draw_rounds),
    )


def _ids(jobs: list[Job]) -> np.ndarray:
    """The client of each job, i64[n]."""
    return np.array([job.client for job in jobs], np.int64)


def _rows(clients: np.ndarray, resident: np.ndarray | None) -> np.ndarray:
    """The rows of clients' states: their numbers, or indices among the resident."""
    return clients if resident is None else np.searchsorted(resident, clients)


def _describe(versions: list[Version], of_round: int, time: float) -> dict[str, Any]:
    """The log's entries of each round: seconds, bytes sent, staleness, turns."""
    history = []
    for first in range(0, len(versions), of_round):
        of_this = versions[first : first + of_round]
        jobs = [job for version in of_this for job in version.flushed]
        staleness = [tau for version in of_this for tau in version.staleness]
        entry = {
            "seconds": of_this[-1].time - time,
            "asked": sum(len(version.started) for version in of_this),
            "reported": len(jobs),
            "staleness": np.mean(staleness),
            "turn_client": [job.client for job in jobs],
            "turn_start": [job.start for job in jobs],
            "turn_seconds": [job.end - job.start for job in jobs],
            "turn_reported": [1.0] * len(jobs),
        }
        history.append(entry)
        time = of_this[-1].time
    names = history[0] if history else ()
    return {name: np.asarray([entry[name] for entry in history]) for name in names}
