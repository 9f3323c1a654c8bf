"""Laws of every selection, with any method, inside compiled rounds."""

import functools
import subprocess
import sys
from pathlib import Path

import jax

if __name__ == "__main__":  # JAX counts devices when it starts
    jax.config.update("jax_num_cpu_devices", 2)

import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import algorithms, engine, selection
from pfljax.conformance import toy
from pfljax.core.types import Local
from pfljax.engine import mesh
from selecting import CLIENTS, made, public
from tiny import environment

NAMES = sorted(selection.SELECTIONS)
LOCAL = Local(0.1, 8, epochs=2)
TRAIN, _ = toy.ragged()
TASK = toy.classifier()
OPTIONS = {
    "availability": {"pattern": "diurnal"},
    "bernoulli": {"places": 5},
    "favor": {"components": 2, "hidden": 4},
    "tifl": {"tiers": 2, "interval": 2},
}
STATELESS = ("availability", "bernoulli", "by_size", "round_robin", "uniform")
SEEN = ("cmab", "oort", "power_of_choice")  # with states of three kinds
BY_STATE = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in SEEN))
    for name in NAMES
    if name not in STATELESS
]
LOOK = ("cmab", "favor")  # at the models of clients


def setting_of(name, method="fedavg", **changed):
    options = OPTIONS.get(name, {}) | changed
    algorithm = algorithms.method(method)(TASK, LOCAL)
    return engine.Setting(algorithm, LOCAL, made(name, 3, **options))


def first(setting):
    return engine.init(setting, TASK, CLIENTS, jax.random.key(1))


@functools.cache
def played(name, method):
    """(setting, compiled rounds, the state after six in one call, its metrics)."""
    setting = setting_of(name, method)
    program = engine.compile_rounds(setting, 6)
    state, metrics = program(first(setting), TRAIN, 6, public=public())
    return setting, program, state, metrics


def check_cuts(name, method):
    """Six rounds in one call, or three and three: the same bits, one program."""
    setting, program, whole, metrics = played(name, method)
    state = first(setting)
    state, _ = program(state, TRAIN, 3, public=public())
    cohorts = [np.asarray(state.cohort)]
    state, _ = program(state, TRAIN, 3, public=public())
    toy.assert_same(state, whole)
    assert program._cache_size() == 1
    cohorts.append(np.asarray(state.cohort))
    for ids in cohorts:
        members = ids[ids < CLIENTS]
        assert (members >= 0).all()
        if not setting.selection.replacement:
            assert len(set(members)) == len(members)
    for leaf in jax.tree.leaves((whole.server, whole.selection)):
        assert jnp.isfinite(leaf).all() or name in ("power_of_choice", "tifl")
    assert (metrics["asked"] <= setting.selection.cohort).all()
    if not setting.selection.replacement:  # else some count twice
        assert whole.participations.sum() == metrics["reported"].sum()


@pytest.mark.parametrize("name", BY_STATE)
def test_rounds_may_be_cut_anywhere(name):
    check_cuts(name, "fedavg")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_rounds_with_states_of_clients_may_be_cut_anywhere(name):
    check_cuts(name, "ditto")


@pytest.mark.slow
def test_two_devices_choose_the_same_cohorts(tmp_path):
    """In another process, which has two: the program is this file."""
    program = str(Path(__file__))
    played = subprocess.run([sys.executable, program], env=environment(tmp_path))
    assert played.returncode == 0


def check_two_devices(name, **changed):
    alone = setting_of(name, "ditto", **changed)
    shared = alone._replace(mesh=mesh.make(2))
    wanted, _ = engine.compile_rounds(alone, 4)(first(alone), TRAIN, 4, public=public())
    state = first(shared)
    state = jax.device_put(state, mesh.shardings(shared.mesh, state))
    placed = mesh.place(shared.mesh, (TRAIN, public()))
    state, _ = engine.compile_rounds(shared, 4)(state, placed[0], 4, public=placed[1])
    np.testing.assert_array_equal(state.participations, wanted.participations)
    np.testing.assert_array_equal(state.cohort, wanted.cohort)
    toy.assert_close(state.server, wanted.server)
    toy.assert_close(state.selection, wanted.selection)


@pytest.mark.parametrize(
    "name", ["bernoulli", pytest.param("availability", marks=pytest.mark.slow)]
)
def test_an_empty_place_changes_nothing(name):
    """Nobody trains there: the participations are those of the members alone."""
    setting, program, whole, metrics = played(name, "fedavg")
    state = first(setting)
    counted = np.zeros(CLIENTS + 1, int)
    for _ in range(6):
        state, _ = program(state, TRAIN, 1, public=public())
        np.add.at(counted, np.asarray(state.cohort), 1)
    np.testing.assert_array_equal(whole.participations, counted[:CLIENTS])
    assert counted[CLIENTS] > 0
    asked = np.asarray(metrics["asked"])
    assert asked.sum() == counted[:CLIENTS].sum()
    np.testing.assert_array_equal(metrics["reported"], asked)


@pytest.mark.parametrize("name", LOOK)
@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("scaffold", "uploads have to be models.*of an upload here, the leaf"),
        ("local", "have to be models.*server has no single model of all"),
    ],
)
def test_who_looks_at_models_refuses_methods_without(name, method, expected):
    setting = setting_of(name, method)
    state = first(setting)
    with pytest.raises(ValueError, match=expected) as error:
        jax.eval_shape(
            lambda state: engine.one_round(setting, state, TRAIN, public=public()),
            state,
        )
    assert "\n" not in str(error.value)


def test_uploads_are_stacked_for_who_looks_at_them():
    from pfljax.engine import summing

    setting = setting_of("cmab")._replace(width=1)
    assert summing.upload_weights(setting, None, None) is None


if __name__ == "__main__":
    for each in NAMES:
        check_two_devices(each)
    check_two_devices("power_of_choice", loss="all", batch_size=4)
