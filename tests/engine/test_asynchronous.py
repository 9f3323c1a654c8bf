"""FedAsync and FedBuff against their updates in NumPy, and against FedAvg."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import engine, selection
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.conformance import toy
from pfljax.core.components import parse
from pfljax.core.types import Local
from pfljax.data.profiles import Profile
from pfljax.engine import asynchronous, contract, modes
from pfljax.engine.clock import Clock
from pfljax.simulate import clocks
from pfljax.simulate.shape import Shape

TASK = toy.quadratic()
LOCAL = toy.full_batch(epochs=2)
TRAIN = toy.quadratic_clients()
DIFFERENT = (1.0, 2.5, 4.0, 0.7)
SHAPE = TRAIN.examples.x.shape[1:]


def setting_of(mode, step=DIFFERENT, cohort=3, method=None, width=None, local=LOCAL):
    """A setting in which only local steps take time."""
    clients = len(step)
    ones = np.ones(clients)
    profile = Profile(np.asarray(step), ones, ones, 0 * ones, ones)
    setting = engine.Setting(
        algorithm=(method or fedavg)(TASK, local),
        local=local,
        selection=selection.uniform(cohort, clients),
        width=width,
        clock=Clock(profile, down=0 * ones, up=0 * ones),
    )
    mode = modes.make(parse(mode), cohort)
    if mode is None:
        return setting
    like = clocks.pending_shapes(setting, mode, TASK, Shape(clients, SHAPE, 3))
    return setting._replace(mode=mode._replace(like=like))


def first(setting):
    clients = len(setting.clock.down)
    return engine.init(setting, TASK, clients, jax.random.key(5))


def program(setting, at_most=6):
    build = asynchronous if setting.mode else engine
    return build.compile_rounds(setting, at_most)


def played(setting, rounds=6, train=TRAIN):
    state, metrics = program(setting)(first(setting), train, rounds)
    return state, metrics


def versions_of(setting, count):
    """The events, as the program has them."""
    schedule = asynchronous.compile_rounds(setting, 1)
    key = jax.random.key(5)
    return schedule._schedule(key, TRAIN, 0).take(count)


def descended(k, w):
    return toy.descend(w, lambda at: toy.gradient(k, at), 2)


@pytest.mark.parametrize(
    ("text", "s"),
    [
        ("constant,a=0.3", lambda tau: 1.0),
        ("polynomial", lambda tau: (1 + tau) ** -0.5),
        ("polynomial,a=2", lambda tau: (1 + tau) ** -2.0),
        ("hinge", lambda tau: 1 if tau <= 6 else 1 / (1 + 10 * (tau - 6))),
        ("hinge,a=1,b=2", lambda tau: 1 if tau <= 2 else 1 / (1 + tau - 2)),
    ],
)
def test_staleness_functions(text, s):
    name, *options = text.split(",")
    values = dict(option.split("=") for option in options)
    a = float(values["a"]) if "a" in values else None
    tau = jnp.arange(20)
    found = modes.decay(name, a, float(values.get("b", 6)))(tau)
    np.testing.assert_allclose(found, [s(t) for t in range(20)], rtol=1e-6)
    assert found[0] == 1


@pytest.mark.parametrize("width", [1, pytest.param(None, marks=pytest.mark.slow)])
def test_a_buffer_of_the_cohort_on_equal_devices_is_fedavg_bit_for_bit(width):
    """Of Ditto, whose clients keep a model: its states are compared as well."""
    # Examples of a client differ, so that minibatches matter: keys are those of FedAvg.
    train = toy.noisy_clients()._replace(size=jnp.full(8, 3))
    same = (1.0,) * 8, 5, ditto, width, Local(0.1, batch_size=2, epochs=2)
    synchronous, expected = played(setting_of("sync", *same), 6, train)
    state, metrics = played(setting_of("fedbuff:buffer=5", *same), 6, train)
    toy.assert_same(state._replace(pending=()), synchronous)
    for name in ("loss", "seconds", "asked", "reported"):
        np.testing.assert_array_equal(metrics[name], expected[name], err_msg=name)
    assert not metrics["staleness"].any()


def test_fedbuff_is_the_papers_update():
    setting = setting_of("fedbuff:buffer=2,server_lr=0.7,a=1.5", width=3)
    state, metrics = played(setting)
    w = toy.flat(first(setting).server)
    read = {}
    for version in versions_of(setting, 6):
        read |= {job.number: w for job in version.started}
        counts = np.array([toy.COUNTS[job.client] for job in version.flushed])
        changes = []
        for job, tau in zip(version.flushed, version.staleness, strict=True):
            start = read[job.number]
            change = descended(job.client, start) - start
            changes.append((1 + tau) ** -1.5 * change)
        w = w + 0.7 * np.average(changes, axis=0, weights=counts)
    np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-6)
    assert metrics["staleness"].max() > 0
    assert set(metrics) <= {"loss", *contract.COUNTED}
    np.testing.assert_array_equal(metrics["reported"], np.full(6, 2))
    assert int(state.participations.sum()) == 12


def test_fedasync_is_the_papers_update():
    setting = setting_of("fedasync:alpha=0.8,a=0.5")
    state, metrics = played(setting, rounds=2)
    w = toy.flat(first(setting).server)
    read = {}
    for version in versions_of(setting, 6):  # three a round
        read |= {job.number: w for job in version.started}
        (job,) = version.flushed
        alpha = 0.8 * (1 + version.staleness[0]) ** -0.5
        w = (1 - alpha) * w + alpha * descended(job.client, read[job.number])
    np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-6)
    assert int(state.round) == 2
    assert metrics["staleness"].max() > 0


@pytest.mark.slow
def test_alpha_of_one_and_a_cohort_of_one_replaces_the_model():
    setting = setting_of("fedasync:alpha=1.0,staleness=constant", cohort=1)
    state, _ = played(setting, rounds=1)
    ((job,),) = [version.flushed for version in versions_of(setting, 1)]
    start = first(setting).server
    expected = descended(job.client, toy.flat(start))
    np.testing.assert_allclose(toy.flat(state.server), expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fedbuff:buffer=2", "fedasync"])
def test_rounds_cut_into_calls_are_the_same_bit_for_bit(mode, monkeypatch):
    """Also where another program goes on, as after a kill."""
    # Cohorts are drawn after the first state was donated as well.
    monkeypatch.setattr(asynchronous, "BLOCK", 2)
    setting = setting_of(mode, method=ditto)
    whole, expected = played(setting)
    run = program(setting)
    state, before = run(first(setting), TRAIN, 1)
    state, middle = run(state, TRAIN, 2)
    state = toy.copy(state)
    again, behind = program(setting)(state, TRAIN, 3)
    toy.assert_same(again, whole)
    for name in ("seconds", "staleness", "turn_client", "turn_start"):
        parts = np.concatenate([before[name], middle[name], behind[name]])
        np.testing.assert_array_equal(parts, expected[name], err_msg=name)
    losses = [before["loss"][:1], middle["loss"][:2], behind["loss"][:3]]
    np.testing.assert_array_equal(np.concatenate(losses), expected["loss"])


@pytest.mark.slow
def test_clients_that_read_one_version_may_train_in_any_chunks():
    wide, _ = played(setting_of("fedbuff:buffer=2", width=2))
    narrow, _ = played(setting_of("fedbuff:buffer=2", width=1))
    toy.assert_close(wide.server, narrow.server)


@pytest.mark.slow
def test_a_client_in_flight_keeps_its_state_until_its_upload_is_used():
    setting = setting_of("fedbuff:buffer=2", method=ditto)
    state, _ = played(setting, rounds=1)
    (version,) = versions_of(setting, 1)
    used = {job.client for job in version.flushed}
    before = first(setting).clients
    for k in range(4):
        changed = not np.array_equal(
            *(toy.flat(jax.tree.map(lambda leaf, k=k: leaf[k], s))
              for s in (before, state.clients))
        )  # fmt: skip
        assert changed == (k in used)
    assert len(version.started) > len(used)


def test_synchronous_rounds_refuse_a_mode():
    setting = setting_of("fedasync")
    with pytest.raises(ValueError, match="has an asynchronous mode"):
        engine.compile_rounds(setting, 2)(first(setting), TRAIN, 2)
