"""The laws of a run with every channel: 3 + 3 = 6 rounds, and whoever is not asked."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

from channels_on_devices import CASES as CASES_ON_DEVICES
from pfljax import algorithms, channel, engine, selection
from pfljax.conformance import toy
from pfljax.core import aggregation, components, factories
from pfljax.core.communication import trace_exchanges
from pfljax.core.types import Local
from tiny import environment

TESTS = Path(__file__).parents[1]
CLIENTS = len(toy.SIZES)
# One of each kind, with a method of states at both ends; tests/devices_laws has the
# other channels and families.
CASES = [
    "top_k",  # memory of clients beside states of their own
    *(pytest.param(name, marks=pytest.mark.slow) for name in (
        "adaptive_clip", "lost", "alie", "krum:byzantine=0",
    )),
]  # fmt: skip


def setting_of(method, *names):
    """The setting of a method on the toy's classifier, behind these channels."""
    task = toy.classifier()
    local = Local(0.1, batch_size=4, epochs=1)
    choice = components.parse(method)
    factory = algorithms.method(choice.name)
    options = choice.options | factories.select_context(factory, rounds=6)
    algorithm = factory(task, local, **options)
    through = channel.make([components.parse(name) for name in names])
    if through is not None:
        exchanges = trace_exchanges(algorithm, task, CLIENTS, (3,))
        through, algorithm = channel.fit(through, algorithm, exchanges)
    draw = selection.uniform(3, CLIENTS)
    return engine.Setting(algorithm, local, draw, channel=through), task


def played(program, state, train, *counts):
    """The state after these rounds, call by call."""
    for count in counts:
        state, _ = program(toy.copy(state), train, count)
    return state


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_run_with_a_channel_holds_to_the_laws(name):
    setting, task = setting_of("ditto", name)
    train, _ = toy.ragged()
    first = engine.init(setting, task, CLIENTS, jax.random.key(0))
    program = engine.compile_rounds(setting, 6)
    six = played(program, first, train, 6)
    toy.assert_same(played(program, first, train, 3, 3), six)
    for before, after in zip(jax.tree.leaves(first), jax.tree.leaves(six), strict=True):
        assert (before.shape, before.dtype) == (after.shape, after.dtype)
    for leaf in jax.tree.leaves((six.server, six.clients, six.channel)):
        assert np.isfinite(np.asarray(leaf, float)).all()
    after = played(program, first, train, 1)
    asked = np.asarray(after.cohort)
    others = np.setdiff1d(np.arange(CLIENTS), asked)
    for before, now in zip(
        jax.tree.leaves(first.clients), jax.tree.leaves(after.clients), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(before)[others], now[others])


@cache
def four_rounds(*names):
    """The state of Ditto after four rounds behind these channels."""
    setting, task = setting_of("ditto", *names)
    state = engine.init(setting, task, CLIENTS, jax.random.key(0))
    train, _ = toy.ragged()
    return played(engine.compile_rounds(setting, 4), state, train, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["top_k:share=1.0", "random_k:share=1.0", "lost:share=0", "clip:norm=1e30",
     "dp:norm=1e30,multiplier=0", "norm_clip:norm=1e30", "sign_flip:attackers=0",
     "ipm:attackers=0", "low_rank:rank=999"],
)  # fmt: skip
def test_a_channel_at_its_limit_is_none_to_the_bit(name):
    plain, limit = four_rounds(), four_rounds(name)
    toy.assert_same(limit.server, plain.server)
    clients = limit.clients
    if isinstance(clients, channel.ClientMemory):
        clients, memory = clients
        assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(memory))
    toy.assert_same(clients, plain.clients)


@pytest.fixture(scope="module")
def on_devices(tmp_path_factory):
    """The output of tests/channels_on_devices.py, by channels and devices."""
    file = tmp_path_factory.mktemp("devices") / "played.json"
    program = str(TESTS / "channels_on_devices.py")
    env = environment(file.parent / "cache")
    subprocess.run([sys.executable, program, str(file)], env=env, check=True)
    return json.loads(file.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("way", ["2", "4 pinned"])
@pytest.mark.parametrize("names", [" ".join(names) for names in CASES_ON_DEVICES])
def test_channels_on_several_devices_do_as_on_one(on_devices, names, way):
    one, several = on_devices[names]["1"], on_devices[names][way]
    for part in ("all", "clients"):
        for a, b in zip(one[part], several[part], strict=True):
            np.testing.assert_allclose(
                np.asarray(a, float), np.asarray(b, float), rtol=1e-5, atol=1e-5
            )


def test_a_client_whose_upload_is_lost_goes_back_to_its_state():
    """Of the clients asked, those that arrive are in the server, and no others."""
    setting, task = setting_of("ditto", "lost:share=0.5")
    train, _ = toy.ragged()
    first = engine.init(setting, task, CLIENTS, jax.random.key(1))
    after = played(engine.compile_rounds(setting, 1), first, train, 1)
    changed = np.zeros(CLIENTS, bool)
    for before, now in zip(
        jax.tree.leaves(first.clients), jax.tree.leaves(after.clients), strict=True
    ):
        differs = np.asarray(before) != np.asarray(now)
        changed |= differs.reshape(CLIENTS, -1).any(1)
    np.testing.assert_array_equal(changed, np.asarray(after.participations) > 0)
    assert set(np.flatnonzero(changed)) < set(np.asarray(after.cohort).tolist())
    assert changed.any()


def test_fedcurv_subtracts_only_what_has_arrived():
    """The server's sums are those of the clients that say so."""
    setting, task = setting_of("fedcurv", "lost:share=0.4")
    train, _ = toy.ragged()
    state = engine.init(setting, task, CLIENTS, jax.random.key(0))
    program = engine.compile_rounds(setting, 1)
    for _ in range(6):
        state = played(program, state, train, 1)
        last = np.asarray(state.clients.round == state.server.round, np.float32)
        sums = aggregation.weighted_sum(state.clients.curvature, last)
        toy.assert_close(state.server.sums, sums, 1e-6)
