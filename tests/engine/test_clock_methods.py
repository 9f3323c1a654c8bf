"""The clock with every family of methods: who is late is as if its mask were 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import algorithms, engine, selection
from pfljax.conformance import toy
from pfljax.core.components import parse
from pfljax.core.types import Local
from pfljax.data import profiles
from pfljax.engine import asynchronous, modes
from pfljax.engine.clock import Clock, mean_seconds
from pfljax.simulate import clocks
from pfljax.simulate.shape import Shape

pytestmark = pytest.mark.slow
LOCAL = Local(0.05, batch_size=4, epochs=1)
TRAIN, _ = toy.ragged()
CLIENTS = len(TRAIN.size)
ONE_A_FAMILY = (
    "fedavg", "scaffold", "per_fedavg", "fedrep", "ditto", "apfl", "ifca", "fedproto",
    "pfedvem",
)  # fmt: skip


def setting_of(name, clock=None, mask=None, cohort=5):
    """The method on the toy; in the cohort `mask` f32[C] says by client who reports."""
    factory = algorithms.method(name)
    algorithm = factory(toy.classifier(), LOCAL, **toy.run_options(factory, 2))
    select = selection.uniform(cohort, CLIENTS)
    if mask is not None:
        select = masked(select, mask)
    return engine.Setting(algorithm, LOCAL, select, clock=clock)


def masked(select, mask):
    """The selection with a mask by client, of the cohort that it draws in round 0."""
    setting = engine.Setting(None, LOCAL, select)
    cohort = engine.draw(setting, (), jax.random.key(2), jnp.int32(0))
    return select._replace(
        work=lambda state, key, ids, steps: (steps, jnp.asarray(mask)[cohort])
    )


def clock_of(deadline=None):
    profile = profiles.make(parse("speed_groups:step=1"), CLIENTS)
    nothing = np.zeros(CLIENTS)
    return Clock(profile, nothing, nothing, deadline)


def after(setting, rounds=1):
    state = engine.init(setting, toy.classifier(), CLIENTS, jax.random.key(2))
    return engine.compile_rounds(setting, rounds)(state, TRAIN, rounds)


@pytest.mark.parametrize("name", ONE_A_FAMILY)
def test_who_is_late_is_as_if_it_were_dropped(name):
    steps = -(-np.asarray(TRAIN.size) // LOCAL.batch_size)
    work = engine.count_gradients(setting_of(name), steps, TRAIN.size, True)
    seconds = mean_seconds(clock_of(), np.asarray(work))
    deadline = float(np.quantile(seconds, 0.5))
    in_time = (seconds <= deadline).astype(np.float32)
    timed, metrics = after(setting_of(name, clock_of(deadline)))
    dropped, expected_metrics = after(setting_of(name, mask=in_time))
    assert 0 < float(metrics["reported"][0]) < 5
    toy.assert_same(timed, dropped)
    np.testing.assert_array_equal(metrics["loss"], expected_metrics["loss"])


# With states of the clients, and without; with a body alone, and with a mixture.
TAKE_PART = ("fedavg", "fedprox", "per_fedavg", "fedper", "ditto", "apfl", "superfed")


@pytest.mark.parametrize("mode", ["fedbuff:buffer=2", "fedasync"])
@pytest.mark.parametrize("name", TAKE_PART)
def test_asynchronous_rounds_of_methods_that_take_part(name, mode):
    setting = setting_of(name, clock_of(), cohort=3)
    mode = modes.make(parse(mode), 3)
    task = toy.classifier()
    shape = Shape(CLIENTS, (3,), 3)
    assert not clocks.misfit(setting.algorithm, task, shape)
    like = clocks.pending_shapes(setting, mode, task, shape)
    setting = setting._replace(mode=mode._replace(like=like))
    state = engine.init(setting, task, CLIENTS, jax.random.key(2))
    program = asynchronous.compile_rounds(setting, 3)
    before = jax.eval_shape(lambda: state)
    state, metrics = program(state, TRAIN, 3)
    assert jax.eval_shape(lambda: state) == before
    for leaf in jax.tree.leaves((state.server, state.clients)):
        assert np.isfinite(leaf).all()
    assert np.isfinite(metrics["loss"]).all()
    reported = np.asarray(metrics["reported"]).sum()
    assert int(state.participations.sum()) == reported


def test_methods_whose_uploads_are_models_take_part_and_others_do_not():
    def takes_part(name):
        algorithm = setting_of(name).algorithm
        return not clocks.misfit(algorithm, toy.classifier(), Shape(CLIENTS, (3,), 3))

    assert all(map(takes_part, TAKE_PART))
    assert not any(map(takes_part, ("scaffold", "ifca", "fedmd", "feddf", "local")))
