"""Clients of several architectures in one round; law 12 is in the conformance suite."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from pfljax import engine, models, selection
from pfljax.algorithms.decoupling.lg_fedavg import lg_fedavg
from pfljax.algorithms.local import local as alone
from pfljax.conformance import toy
from pfljax.core.types import Local
from pfljax.engine import architectures
from pfljax.engine.plan import FAR, plan
from pfljax.engine.setting import Groups

CLIENTS, COHORT, ROUNDS = 8, 5, 3
LOCAL = Local(0.1, batch_size=4)
PATTERN = (0, 1, 1)


def task(hidden):
    return toy.traced_once(models.task(models.mlp(3, hidden=hidden), (3,)))


TASKS = task((5, 4)), task((2, 4))


def setting_of(method, select=None, pattern=PATTERN, width=1):
    methods = tuple(method(each, LOCAL) for each in TASKS)
    groups = Groups(methods, TASKS, pattern)
    select = select or selection.uniform(COHORT, CLIENTS)
    return engine.Setting(methods[0], LOCAL, select, width=width, groups=groups)


def played(setting, rounds=ROUNDS):
    train, _ = toy.ragged()
    first = engine.init(setting, TASKS[0], CLIENTS, jax.random.key(3))
    program = engine.compile_rounds(setting, rounds)
    return program(first, train, rounds)


@pytest.mark.slow
def test_each_client_trains_as_among_its_equals():
    # Local training: nobody hears of another, so a group is as a federation of one.
    state, _ = played(setting_of(alone))
    for group, of_group in enumerate(TASKS):
        one = setting_of(alone)._replace(algorithm=alone(of_group, LOCAL), groups=None)
        train, _ = toy.ragged()
        first = engine.init(one, of_group, CLIENTS, jax.random.key(3))
        equals, _ = engine.compile_rounds(one, ROUNDS)(first, train, ROUNDS)
        members = np.flatnonzero(np.resize(PATTERN, CLIENTS) == group)
        theirs = jax.tree.map(lambda leaf, ids=members: leaf[ids], equals.clients)
        toy.assert_same(state.clients[group], theirs)
        toy.assert_same(state.participations, equals.participations)


@pytest.mark.parametrize("width", [1, pytest.param(None, marks=pytest.mark.slow)])
def test_the_server_averages_over_all_groups(width):
    setting = setting_of(lg_fedavg, width=width)
    groups = setting.groups
    train, _ = toy.ragged()
    first = engine.init(setting, TASKS[0], CLIENTS, jax.random.key(3))
    before = toy.copy(first)
    state, _ = engine.compile_rounds(setting, 1)(first, train, 1)
    trains = [jax.jit(method.train) for method in groups.algorithms]
    total, count = 0.0, 0
    for client in np.asarray(state.cohort).tolist():
        group = groups.pattern[client % 3]
        row = groups.rows(client)
        own = jax.tree.map(lambda leaf, row=row: leaf[row], before.clients[group])
        data = toy.one(train, client)
        size = int(data.size)
        turn = toy.turn(
            toy.turn_key(before, client), steps=-(-size // 4), client_id=client
        )
        _, head, _ = trains[group](turn, before.server, own, data)
        total = total + size * ravel_pytree(head)[0]
        count += size
    server, _ = ravel_pytree(state.server)
    np.testing.assert_allclose(server, total / count, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 1), min_size=2, max_size=CLIENTS), st.integers(0, 99))
def test_every_member_has_one_slot(pattern, seed):
    pattern = (0, 1, *pattern[2:])
    weights = np.arange(1, CLIENTS + 1)
    setting = setting_of(alone, selection.by_size(COHORT, weights), pattern)
    train, _ = toy.ragged()
    state = engine.init(setting, TASKS[0], CLIENTS, jax.random.key(seed))
    turns = plan(setting, state, train, None)
    places = []
    for group in range(2):
        slots = architectures._members(setting.groups, turns, group, CLIENTS)
        filled = np.asarray(slots.rows) < FAR
        ids = np.asarray(slots.ids)[filled]
        assert (np.diff(filled.astype(int)) <= 0).all()  # empty slots come last
        assert (np.resize(pattern, CLIENTS)[ids] == group).all()
        members = setting.groups.members(group, CLIENTS)
        np.testing.assert_array_equal(members[np.asarray(slots.rows)[filled]], ids)
        assert not np.asarray(slots.mask)[~filled].any()
        places += np.asarray(slots.position)[filled].tolist()
    counted = np.flatnonzero(np.asarray(turns.draws) > 0)
    assert sorted(places) == counted.tolist()


def test_what_does_not_stack_is_refused():
    def sending(task, local):
        method = alone(task, local)

        def train(turn, message, w, data):
            w, _, metrics = method.train(turn, message, w, data)
            return w, w, metrics

        return method._replace(train=train)

    with pytest.raises(ValueError, match="send what does not stack: the leaf"):
        played(setting_of(sending))
