"""The order of asynchronous events, against a queue that is written out in NumPy."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pfljax.data.profiles import Profile
from pfljax.engine import events
from pfljax.engine.clock import Clock
from pfljax.engine.events import make_draws


def clock_of(step, jitter=0.0, availability=1.0):
    """Devices that need so many seconds a step, and none for what they send."""
    step = np.asarray(step, float)
    ones = np.ones(len(step))
    profile = Profile(step, ones, ones, jitter * ones, availability * ones)
    return Clock(profile, down=0 * ones, up=0 * ones)


def cohorts_of(clients, cohort, seed, steps=None):
    """Cohorts of different clients, without end."""
    rng = np.random.default_rng(seed)
    while True:
        ids = rng.permutation(clients)[:cohort]
        budget = np.ones(cohort, int) if steps is None else np.asarray(steps)[ids]
        yield ids, budget, budget


def taken(clock, cohort, buffer, count, seed=0, steps=None):
    clients = len(clock.down)
    cohorts = cohorts_of(clients, cohort, seed, steps)
    found = events.versions(clock, cohorts, make_draws([seed]), cohort, buffer)
    return list(itertools.islice(found, count))


def replayed(step, cohort, buffer, count, seed=0):
    """[(clients, starts, ends, staleness)] by version: arrays and the least end."""
    clients = len(step)
    drawn = (int(k) for ids, _, _ in cohorts_of(clients, cohort, seed) for k in ids)
    end = np.full(clients, np.inf)  # of who is in flight
    start = np.zeros(clients)
    read = np.zeros(clients, int)
    order = np.zeros(clients, int)  # of starts
    waits = np.zeros(clients, bool)
    buffered, versions = [], []
    now, version, starts = 0.0, 0, 0
    while True:
        while (
            np.isfinite(end).sum() < cohort
            and (waits | np.isfinite(end)).sum() < clients
        ):
            k = next(drawn)
            if waits[k] or np.isfinite(end[k]):
                continue
            start[k], end[k], read[k], order[k] = now, now + step[k], version, starts
            starts += 1
        now = end.min()
        arriving = np.flatnonzero(end == now)
        for k in arriving[np.argsort(order[arriving])]:
            buffered.append((int(k), start[k], end[k], int(read[k])))
            end[k], waits[k] = np.inf, True
            if len(buffered) == buffer:
                versions.append([(*b[:3], version - b[3]) for b in buffered])
                waits[[b[0] for b in buffered]] = False
                buffered = []
                version += 1
                if version == count:
                    return versions


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_ids_times_and_staleness_are_those_of_a_queue(data):
    clients = data.draw(st.integers(1, 9))
    cohort = data.draw(st.integers(1, clients))
    buffer = data.draw(st.integers(1, cohort))
    # Few different times, so that many arrive at once.
    step = data.draw(
        st.lists(st.sampled_from([1.0, 2.0, 3.5]), min_size=clients, max_size=clients)
    )
    seed = data.draw(st.integers(0, 99))
    found = taken(clock_of(step), cohort, buffer, 12, seed)
    expected = replayed(np.asarray(step), cohort, buffer, 12, seed)
    for version, of_replay in zip(found, expected, strict=True):
        rows = [
            (job.client, job.start, job.end, tau)
            for job, tau in zip(version.flushed, version.staleness, strict=True)
        ]
        assert rows == of_replay


@settings(deadline=None, max_examples=40)
@given(
    cohort=st.integers(1, 6),
    share=st.floats(0.01, 1),
    jitter=st.sampled_from([0.0, 0.7]),
    seed=st.integers(0, 99),
)
def test_laws_of_every_schedule(cohort, share, jitter, seed):
    clients = 8
    buffer = max(1, round(share * cohort))
    rng = np.random.default_rng(seed)
    clock = clock_of(rng.choice([0.5, 1, 4], clients), jitter, availability=0.8)
    versions = taken(clock, cohort, buffer, 20, seed, rng.integers(0, 4, clients))
    times = [version.time for version in versions]
    assert times == sorted(times)
    jobs = [job for version in versions for job in version.started]
    assert [job.number for job in jobs] == list(range(len(jobs)))
    for version in versions:
        assert len(version.flushed) == buffer
        assert min(version.staleness) >= 0
        for job in version.started:
            assert job.version == version.number
        for job, tau in zip(version.flushed, version.staleness, strict=True):
            assert tau == version.number - job.version
            assert job.start <= job.end <= version.time
    # In flight, and with a slot of one's own until the upload is used.
    used = {job.number: v.time for v in versions for job in v.flushed}
    for time in sorted({job.start for job in jobs}):
        in_flight = [job for job in jobs if job.start <= time < job.end]
        assert len(in_flight) <= cohort
        assert len({job.client for job in in_flight}) == len(in_flight)
    for one, two in itertools.combinations(jobs, 2):
        if one.slot == two.slot or one.client == two.client:
            assert one.number in used
            assert used[one.number] <= two.start
    assert {job.slot for job in jobs} <= set(range(min(clients, cohort + buffer - 1)))


def test_a_longer_schedule_begins_as_a_shorter_one():
    clock = clock_of([1, 2, 3, 4, 5.0], jitter=0.5)
    assert taken(clock, 3, 2, 20)[:5] == taken(clock, 3, 2, 5)
    assert taken(clock, 3, 2, 5, seed=1) != taken(clock, 3, 2, 5)


def test_equal_devices_are_synchronous_rounds():
    cohorts = cohorts_of(9, 4, 0)
    for number, version in enumerate(taken(clock_of(np.ones(9)), 4, 4, 6)):
        ids, _, _ = next(cohorts)
        assert [job.client for job in version.flushed] == ids.tolist()
        assert [job.slot for job in version.flushed] == [0, 1, 2, 3]
        assert {job.draw for job in version.flushed} == {number}
        assert version.time == number + 1


def test_fast_devices_take_part_more_often_and_are_fresher():
    step = np.array([1.0] * 10 + [10.0] * 10)
    jobs = [
        (job.client, tau)
        for version in taken(clock_of(step), 10, 1, 600)
        for job, tau in zip(version.flushed, version.staleness, strict=True)
    ]
    client, tau = np.array(jobs).T
    fast = client < 10
    assert fast.sum() > 2 * (~fast).sum()
    assert tau[fast].mean() < tau[~fast].mean()


def test_jitter_is_lognormal_of_median_one():
    jobs = [
        job
        for version in taken(clock_of(np.full(5, 2.0), jitter=0.4), 5, 1, 4000)
        for job in version.flushed
    ]
    logs = np.log([(job.end - job.start) / 2 for job in jobs])
    assert abs(np.median(logs)) < 0.03
    assert abs(logs.std() - 0.4) < 0.02


def test_who_is_seldom_available_takes_part_seldom():
    clock = clock_of(np.ones(10))
    chance = np.array([1.0] * 5 + [0.2] * 5)
    clock = clock._replace(profile=clock.profile._replace(availability=chance))
    flushed = [job for v in taken(clock, 2, 2, 1500) for job in v.flushed]
    counts = np.bincount([job.client for job in flushed], minlength=10)
    assert 4 < counts[:5].sum() / counts[5:].sum() < 6


def test_a_selection_that_draws_nobody_is_refused():
    nobody = itertools.repeat((np.array([7, 7]), np.ones(2, int), np.ones(2)))
    found = events.versions(clock_of(np.ones(5)), nobody, make_draws([0]), 2, 2)
    with pytest.raises(ValueError, match="draws no client that is free"):
        next(found)
