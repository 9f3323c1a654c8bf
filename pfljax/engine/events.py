"""The order of events of asynchronous rounds, on the host, before anything trains.

Seconds follow from work, bytes and the devices' profile, not from parameters. So the
start, arrival and staleness of every client follow from the seed. With a cohort of two
and a buffer of two (a star is the start of a client, a bar a new version):

    client 4  *=====              *===
    client 1  *==  (waits)
    client 7       *=======|===       (waits for one more)
                           ^
    version         0             1

At any time `concurrency` clients train. When one arrives, the next that the selection
draws starts and reads the server as it is then. Clients in flight, and clients whose
upload waits in the buffer, are skipped. Arrivals come before starts at the same time.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pfljax.data.profiles import expected_seconds
from pfljax.engine.clock import Clock

PATIENCE = 64  # cohorts without a free client, before an arrival is awaited

# Ids and steps i32[M], and the work [M], of each.
Cohorts = Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]


class Job(NamedTuple):
    """One turn of a client."""

    number: int  # in the order of starts
    client: int
    draw: int  # the number of its cohort, from which its key derives
    steps: int
    slot: int  # for its upload
    version: int  # of the server that it reads
    start: float
    end: float


class Version(NamedTuple):
    """The events before a version of the server."""

    started: list[Job]  # which read the version before
    flushed: list[Job]  # which make this version, in the order of arrivals and starts
    number: int  # of the version that they meet, up to which staleness counts
    time: float

    @property
    def staleness(self) -> list[int]:
        """Versions between the one that each flushed job read and this one."""
        return [self.number - job.version for job in self.flushed]


class Draws(NamedTuple):
    """Streams of random numbers for jobs."""

    available: np.random.Generator
    jitter: np.random.Generator


def make_draws(seed: list[int]) -> Draws:
    """The draws of a run."""
    return Draws(
        available=np.random.default_rng([0, *seed]),
        jitter=np.random.default_rng([1, *seed]),
    )


class Drawn(NamedTuple):
    """A client that was drawn and is free."""

    client: int
    draw: int
    steps: int
    work: float  # in gradients of minibatches


class Queue(NamedTuple):
    """The jobs that are under way; lists and sets change with each event."""

    in_flight: list[tuple[float, int, Job]]  # a heap, with the next arrival first
    busy: set[int]  # clients in flight, or with a waiting upload
    slots: list[int]  # free ones, a heap


def versions(
    clock: Clock, cohorts: Cohorts, draws: Draws, concurrency: int, buffer: int
) -> Iterator[Version]:
    """Version after version, without end; the order follows from the seed."""
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
    """A function (version, time) -> jobs that start, as many as may be in flight."""
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
                end=time + seconds(free.client, free.work),
            )
            queue.busy.add(job.client)
            heapq.heappush(queue.in_flight, (job.end, job.number, job))
            started.append(job)
        return started

    return starts


def _draw_free(
    clock: Clock, cohorts: Cohorts, draws: Draws, busy: set[int]
) -> Iterator[Drawn | None]:
    """Free clients without end; None if none is found in `PATIENCE` cohorts."""
    chance = clock.profile.availability
    always = bool(np.all(chance == 1))
    missed = 0
    for draw, cohort in enumerate(cohorts):
        jobs = (values.tolist() for values in cohort)
        for client, steps, work in zip(*jobs, strict=True):
            # An empty place of the cohort has a number past the last client.
            if client in busy or client >= len(chance):
                continue
            if not always and draws.available.random() >= chance[client]:
                continue
            missed = 0
            yield Drawn(client=client, draw=draw, steps=steps, work=work)
        missed += 1
        while missed >= PATIENCE:
            missed = 0
            yield None


def _seconds(clock: Clock, draws: Draws) -> Callable[[int, float], float]:
    """The seconds of a turn of a client with so much work."""
    zeros = np.zeros(len(clock.down))
    sending = expected_seconds(clock.profile, zeros, clock.down, clock.up).tolist()
    step = clock.profile.step.tolist()
    jitter = clock.profile.jitter.tolist()

    def seconds(client: int, work: float) -> float:
        exact = sending[client] + work * step[client]
        if not jitter[client]:
            return exact
        noise = draws.jitter.standard_normal()
        return exact * float(np.exp(jitter[client] * noise))

    return seconds
