"""The order of events of asynchronous rounds, on the host, before anything trains.

Seconds come from steps, bytes and the devices' profile, not from parameters: who
starts, when it arrives and how stale it is follows from the seed. Of a cohort of two
and a buffer of two (a star is the start of a client, a bar a new version):

    client 4  *=====              *===
    client 1  *==  (waits)
    client 7       *=======|===       (waits for one more)
                           ^
    version         0             1

At any time `concurrency` clients train. As one arrives, the next that the selection
draws starts, and reads the server as it is then: clients in flight, and clients whose
upload waits in the buffer, are passed over. Arrivals at one time come before starts.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pfljax.data.profiles import expected_seconds
from pfljax.engine.clock import Clock

PATIENCE = 64  # cohorts without a free client, before it is waited for an arrival

Cohorts = Iterator[tuple[np.ndarray, np.ndarray]]  # ids and steps i32[M] of each


class Job(NamedTuple):
    """One turn of a client."""

    number: int  # in the order of starts
    client: int
    draw: int  # the number of the cohort that it was drawn in, which keys its training
    steps: int
    slot: int  # where its upload is kept
    version: int  # of the server, that it reads
    start: float
    end: float


class Version(NamedTuple):
    """What comes before a version of the server: who read the last, who made this."""

    started: list[Job]
    flushed: list[Job]  # in the order of arrivals; of equal ones, of starts
    number: int  # of the version that they meet: staleness counts up to it
    time: float

    @property
    def staleness(self) -> list[int]:
        """Versions between the one that each of the flushed read and this."""
        return [self.number - job.version for job in self.flushed]


class Draws(NamedTuple):
    """Random numbers by job: each of its own stream."""

    available: np.random.Generator
    jitter: np.random.Generator

    @classmethod
    def of(cls, seed: list[int]) -> "Draws":
        """Those of a run."""
        return cls(
            available=np.random.default_rng([0, *seed]),
            jitter=np.random.default_rng([1, *seed]),
        )


class Drawn(NamedTuple):
    """A client that was drawn, and is free."""

    client: int
    draw: int
    steps: int


class Queue(NamedTuple):
    """What is under way; its lists and sets change as events come."""

    in_flight: list[tuple[float, int, Job]]  # a heap: the next arrival first
    busy: set[int]  # clients in flight, or whose upload waits
    slots: list[int]  # free ones, a heap


def versions(
    clock: Clock, cohorts: Cohorts, draws: Draws, concurrency: int, buffer: int
) -> Iterator[Version]:
    """Version after version, without end; one seed has one order, however many."""
    num_clients = len(clock.down)
    slots = min(num_clients, concurrency + buffer - 1)
    queue = Queue(in_flight=[], busy=set(), slots=list(range(slots)))
    starts = _starts(clock, cohorts, draws, queue, concurrency)
    started: list[Job] = []
    waiting: list[Job] = []
    number = 0
    time = 0.0
    while True:
        started += starts(number, time)
        if not queue.in_flight:
            raise ValueError(
                "the selection draws no client that is free; choose another"
            )
        time = queue.in_flight[0][0]
        while queue.in_flight and queue.in_flight[0][0] == time:
            _, _, job = heapq.heappop(queue.in_flight)
            waiting.append(job)
            if len(waiting) < buffer:
                continue
            yield Version(started, waiting, number, time)
            for job in waiting:
                queue.busy.remove(job.client)
                heapq.heappush(queue.slots, job.slot)
            started = []
            waiting = []
            number += 1


def _starts(
    clock: Clock, cohorts: Cohorts, draws: Draws, queue: Queue, concurrency: int
) -> Callable[[int, float], list[Job]]:
    """A function (version, time) -> who starts now: as many as may be in flight."""
    num_clients = len(clock.down)
    seconds = _seconds(clock, draws)
    drawn = _draw_free(clock, cohorts, draws, queue.busy)
    numbers = itertools.count()

    def starts(version: int, time: float) -> list[Job]:
        started: list[Job] = []
        while len(queue.in_flight) < concurrency and len(queue.busy) < num_clients:
            free = next(drawn)
            if free is None:
                break
            job = Job(
                number=next(numbers),
                client=free.client,
                draw=free.draw,
                steps=free.steps,
                slot=heapq.heappop(queue.slots),
                version=version,
                start=time,
                end=time + seconds(free.client, free.steps),
            )
            queue.busy.add(job.client)
            heapq.heappush(queue.in_flight, (job.end, job.number, job))
            started.append(job)
        return started

    return starts


def _draw_free(
    clock: Clock, cohorts: Cohorts, draws: Draws, busy: set[int]
) -> Iterator[Drawn | None]:
    """The next free client, again and again; None where none is found in a while."""
    chance = clock.profile.availability
    always = bool(np.all(chance == 1))
    missed = 0
    for draw, (ids, steps) in enumerate(cohorts):
        for client, budget in zip(ids.tolist(), steps.tolist(), strict=True):
            # An empty place of the cohort has a number past the last client.
            if client in busy or client >= len(chance):
                continue
            if not always and draws.available.random() >= chance[client]:
                continue
            missed = 0
            yield Drawn(client=client, draw=draw, steps=budget)
        missed += 1
        while missed >= PATIENCE:
            missed = 0
            yield None


def _seconds(clock: Clock, draws: Draws) -> Callable[[int, int], float]:
    """The seconds of a turn of a client with so many steps."""
    zeros = np.zeros(len(clock.down))
    sending = expected_seconds(clock.profile, zeros, clock.down, clock.up).tolist()
    step = clock.profile.step.tolist()
    jitter = clock.profile.jitter.tolist()

    def seconds(client: int, steps: int) -> float:
        exact = sending[client] + steps * step[client]
        if not jitter[client]:
            return exact
        noise = draws.jitter.standard_normal()
        return exact * float(np.exp(jitter[client] * noise))

    return seconds
