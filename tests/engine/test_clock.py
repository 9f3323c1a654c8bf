"""Virtual seconds of synchronous rounds, with and without a deadline."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import engine, selection
from pfljax.algorithms.fedavg import fedavg
from pfljax.conformance import toy
from pfljax.core.keys import derive
from pfljax.data.profiles import Profile
from pfljax.engine import clock, contract
from pfljax.engine.clock import Clock
from pfljax.engine.plan import round_key

TASK = toy.quadratic()
LOCAL = toy.full_batch(epochs=2)
TRAIN = toy.quadratic_clients()
STEP = np.array([1.0, 2.0, 4.0, 8.0])  # seconds of each client's step, of two


def clock_of(deadline=None, jitter=0.0, availability=(1.0,) * 4):
    """Clients that send 10 bytes down in a second, and 10 bytes up in two."""
    profile = Profile(
        step=STEP,
        down=np.full(4, 10.0),
        up=np.full(4, 5.0),
        jitter=np.full(4, jitter),
        availability=np.asarray(availability),
    )
    return Clock(profile, down=np.full(4, 10.0), up=np.full(4, 10.0), deadline=deadline)


EXPECTED = 1 + 2 * STEP + 2


def after(timed, rounds=1, select=None, method=None):
    """(state before, state after, metrics by round), jitted at once."""
    select = select or selection.uniform(4, 4)
    method = method or fedavg(TASK, LOCAL)
    setting = engine.Setting(method, LOCAL, select, clock=timed)
    state = engine.init(setting, TASK, 4, jax.random.key(3))
    run = engine.compile_rounds(setting, rounds)
    return toy.copy(state), *run(state, TRAIN, rounds)


@pytest.mark.slow
def test_a_round_takes_as_long_as_its_slowest_client():
    _, _, metrics = after(clock_of())
    np.testing.assert_allclose(metrics["seconds"], [EXPECTED.max()])
    found = dict(
        zip(metrics["turn_client"][0].tolist(), metrics["turn_seconds"][0], strict=True)
    )
    np.testing.assert_allclose([found[k] for k in range(4)], EXPECTED)


def test_the_clock_counts_the_work_of_all_exchanges():
    plain = fedavg(TASK, LOCAL)

    def work(steps, size, is_first):
        return steps + 3 * is_first

    method = plain._replace(work=work, then=plain)
    _, _, metrics = after(clock_of(), rounds=2, method=method)
    slowest = EXPECTED.max() + 2 * STEP.max()
    np.testing.assert_allclose(metrics["seconds"], [slowest + 3 * STEP.max(), slowest])


def test_who_is_late_does_not_report_and_costs_the_deadline():
    before, state, metrics = after(clock_of(deadline=7.5))
    np.testing.assert_allclose(metrics["seconds"], [7.5])
    np.testing.assert_array_equal(metrics["reported"], [2])
    assert set(metrics) <= {"loss", *contract.COUNTED}
    np.testing.assert_array_equal(state.participations, [1, 1, 0, 0])
    # The mean of the two that are in time, by hand.
    local = [toy.descend(toy.flat(before.server), lambda w, k=k: toy.gradient(k, w), 2)
             for k in range(2)]  # fmt: skip
    mean = np.average(local, axis=0, weights=toy.COUNTS[:2])
    np.testing.assert_allclose(toy.flat(state.server), mean, rtol=1e-5)


def test_a_deadline_that_all_meet_changes_nothing():
    _, free, metrics = after(clock_of())
    _, in_time, with_deadline = after(clock_of(deadline=float(EXPECTED.max())))
    toy.assert_same(free.server, in_time.server)
    np.testing.assert_array_equal(metrics["seconds"], with_deadline["seconds"])


@pytest.mark.slow
def test_a_round_in_which_nobody_is_in_time_leaves_the_server():
    before, state, metrics = after(clock_of(deadline=1.0))
    np.testing.assert_array_equal(metrics["seconds"], [1.0])
    toy.assert_same(before.server, state.server)
    assert int(state.round) == 1


def retiered(seconds, turns, retier):
    """The tiers of two before each round, and after the last, in NumPy."""
    taken = {client: [] for client in range(4)}
    tier_of = np.argsort(np.argsort(seconds)) // 2
    for number, (ids, waited) in enumerate(turns, 1):
        yield tier_of
        for client, turn in zip(ids, waited, strict=True):
            taken[client].append(turn)
        if number % retier == 0:
            means = [np.mean(taken[k]) if taken[k] else seconds[k] for k in range(4)]
            tier_of = np.argsort(np.argsort(means)) // 2
    yield tier_of


@pytest.mark.parametrize("jitter", [pytest.param(0.0, marks=pytest.mark.slow), 1.0])
def test_tiers_by_the_seconds_that_the_clock_counted(jitter):
    """A cohort is a whole tier, so tiers are seen; without jitter they stay."""
    options = {"tiers": 2, "policy": "uniform", "retier": 3}
    select = selection.tifl(2, EXPECTED, 12, **options)
    _, state, metrics = after(clock_of(jitter=jitter), 12, select)
    counted = metrics["turn_client"], metrics["turn_seconds"]
    turns = list(zip(*map(np.asarray, counted), strict=True))
    *before, last = retiered(EXPECTED, turns, retier=3)
    for (ids, _), tier_of in zip(turns, before, strict=True):
        (tier,) = set(tier_of[ids])
        assert set(ids.tolist()) == set(np.flatnonzero(tier_of == tier))
    np.testing.assert_array_equal(state.selection.speed.tier_of, last)
    changed = [tier_of.tolist() != [0, 0, 1, 1] for tier_of in (*before, last)]
    assert any(changed) == (jitter > 0)


@pytest.mark.slow
def test_jitter_goes_by_seed_round_and_client():
    timed = clock_of(jitter=0.5)
    rounds = []
    for round_ in range(2):
        key = round_key(jax.random.key(3), jnp.int32(round_))
        ids = jnp.array([2, 0, 3, 1])
        found = clock.draw_seconds(timed, key, ids, jnp.full(4, 2))
        noise = [
            jax.random.normal(jax.random.fold_in(derive(key, "jitter"), k))
            for k in range(4)
        ]
        expected = EXPECTED * np.exp(0.5 * np.array(noise))
        np.testing.assert_allclose(found, expected[np.array(ids)], rtol=1e-5)
        rounds.append(expected)
    assert not np.allclose(*rounds)
    _, _, metrics = after(timed, rounds=2)
    np.testing.assert_allclose(metrics["seconds"], np.max(rounds, 1), rtol=1e-5)


def test_who_has_no_time_is_an_empty_place():
    timed = clock_of(availability=(1.0, 1e-9, 1.0, 1.0))
    _, state, metrics = after(timed)
    np.testing.assert_array_equal(state.participations, [1, 0, 1, 1])
    np.testing.assert_array_equal(metrics["asked"], [3])
    np.testing.assert_array_equal(metrics["reported"], [3])
    assert sorted(state.cohort.tolist()) == [0, 2, 3, 4]
    np.testing.assert_allclose(metrics["seconds"], [EXPECTED.max()])
    assert int(metrics["turn_seconds"][0].min()) == 0


def test_the_server_waits_for_no_straggler_whose_work_is_dropped():
    base = selection.uniform(4, 4)
    dropped = base._replace(
        work=lambda state, key, ids, steps: (steps, jnp.array([1.0, 0.0, 0.0, 0.0]))
    )
    _, state, metrics = after(clock_of(), select=dropped)
    (first,) = np.flatnonzero(np.asarray(state.participations))
    np.testing.assert_allclose(metrics["seconds"], [EXPECTED[first]])


@pytest.mark.slow
def test_a_client_drawn_twice_is_waited_for_once():
    by_size = selection.by_size(8, toy.COUNTS)
    _, state, metrics = after(clock_of(), select=by_size)
    members = np.unique(np.asarray(state.cohort))
    np.testing.assert_allclose(metrics["seconds"], [EXPECTED[members].max()])
    assert float(metrics["reported"][0]) == len(members)


@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_nobody_is_faster_than_the_fastest(jitter):
    timed = clock_of(jitter=jitter)
    expected = EXPECTED.min() * np.exp(-6 * jitter)
    np.testing.assert_allclose(clock.fastest(timed, np.full(4, 2)), expected)
