"""Channels in runs: memory that goes on, malicious clients, bytes, privacy, losses."""

import json
import re

import jax
import numpy as np
import pytest

import tiny
from pfljax import channel, data, engine
from pfljax.channel import count_traffic
from pfljax.core import malicious
from pfljax.simulate import architectures, components, run
from pfljax.simulate.federation import build_federation
from pfljax.simulate.shape import Shape, make_shape

JOB = tiny.TINY.replace(
    algorithm="fedavg", clients=10, rounds=6, eval_every=3, momentum=0.0
)
FEEDBACK = ["top_k:share=0.1"]


def finished(job, folder):
    """The summary of a run in this folder."""
    return run.run(job.replace(out=str(folder)), quiet=True, report=False).summary


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Six rounds with error feedback, without a break."""
    folder = tmp_path_factory.mktemp("whole")
    finished(JOB.replace(channel=FEEDBACK), folder)
    return folder


@pytest.mark.slow
def test_error_feedback_goes_on_bit_for_bit(whole, tmp_path):
    """3 + 3 = 6 rounds, with what clients did not send yet."""
    half = JOB.replace(channel=FEEDBACK, rounds=3)
    finished(half, tmp_path)
    finished(half.replace(rounds=6), tmp_path)
    tiny.assert_same_run(whole, tmp_path)
    state = tiny.last_state(whole)
    assert isinstance(state.clients, channel.ClientMemory)
    errors = np.concatenate(
        [np.asarray(leaf).reshape(10, -1) for leaf in jax.tree.leaves(state.clients)], 1
    )
    took_part = np.asarray(state.participations) > 0
    assert (errors[took_part] != 0).any(1).all()
    assert not errors[~took_part].any()


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"state_storage": "disk"}, {"width": 2}])
def test_memory_lies_wherever_states_do(whole, tmp_path, more):
    half = JOB.replace(channel=FEEDBACK, rounds=3, **more)
    finished(half, tmp_path)
    finished(half.replace(rounds=6), tmp_path)
    one, other = tiny.last_state(whole), tiny.last_state(tmp_path)
    for a, b in zip(jax.tree.leaves(one.clients), jax.tree.leaves(other.clients),
                    strict=True):  # fmt: skip
        np.testing.assert_allclose(a, b, atol=1e-5)
        if "state_storage" in more:
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_memory_of_several_architectures_has_their_shapes(tmp_path):
    job = JOB.replace(
        algorithm="fml", model="auto", models=["mlp:hidden=(8,)", "mlp:hidden=(6,)"],
        channel=["sign"], rounds=3,
    )  # fmt: skip
    finished(job, tmp_path)
    clients = tiny.last_state(tmp_path).clients
    assert all(isinstance(stack, channel.ClientMemory) for stack in clients)


def test_bytes_are_those_behind_the_channel():
    setting, task, federation = parts(JOB.replace(channel=FEEDBACK))
    shape = federation.train.examples.x.shape[1:]
    plain = count_traffic(setting.algorithm, task, 10, shape)
    sent = architectures.mean_traffic(setting, task, Shape(10, shape, 10))
    assert sent.down == plain.down
    assert 0.1 * plain.up < sent.up < 0.16 * plain.up  # places beside the numbers


def parts(job):
    """(setting, task, federation) of a run."""
    federation, _ = build_federation(job)
    shape = make_shape(job, federation)
    task = components.make_task(job, shape)
    return components.make_setting(job, task, shape), task, federation


def test_malicious_clients_are_evaluated_separately(tmp_path):
    job = JOB.replace(
        channel=["sign_flip:attackers=0.3,scale=3.0"], noise="poison:attackers=0.3",
        rounds=3,
    )  # fmt: skip
    finished(job, tmp_path)
    bad = np.asarray(malicious.draw(jax.random.key(job.seed), 10, 0.3))
    with np.load(tmp_path / "clients.npz") as arrays:
        np.testing.assert_array_equal(arrays["malicious"], bad)
        accuracy = arrays["personal/test/accuracy"][-1]
    records = json.loads((tmp_path / "summary.json").read_text())["last"]["evaluations"]
    means = {
        each["clients"]: each["metrics"]["accuracy"]["mean"]
        for each in records
        if each["model"] == "personal" and each["split"] == "test"
    }
    assert means["benign"] == pytest.approx(accuracy[~bad].mean(), rel=1e-5)
    assert means["malicious"] == pytest.approx(accuracy[bad].mean(), rel=1e-5)


def test_poison_is_of_training_examples_of_the_malicious_alone():
    true, _ = build_federation(JOB)
    poisoned, _ = build_federation(JOB.replace(noise="poison:attackers=0.3"))
    bad = np.asarray(malicious.draw(jax.random.key(JOB.seed), 10, 0.3))
    for split in ("train", "validation", "test"):
        rows = getattr(true, split)
        for client in range(10):
            begin = int(rows.offset[client])
            span = slice(begin, begin + int(rows.size[client]))
            same = true.train.examples.y[span] == poisoned.train.examples.y[span]
            if split == "train" and bad[client]:
                assert np.mean(same) < 0.4
            else:
                assert same.all()


@pytest.mark.slow
def test_uploads_that_are_all_lost_leave_the_server_as_it_is():
    job = JOB.replace(channel=["lost:share=0.9999999"])
    setting, task, federation = parts(job)
    state = engine.init(setting, task, 10, jax.random.key(0))
    step = jax.jit(lambda state: engine.one_round(setting, state, federation.train))
    after, metrics = step(state)
    for a, b in zip(jax.tree.leaves(state.server), jax.tree.leaves(after.server),
                    strict=True):  # fmt: skip
        np.testing.assert_array_equal(a, b)
    assert metrics["reported"] == 3  # they were sent
    assert np.isfinite(metrics["loss"])


REFUSED = {
    "noise over a number that is drawn": (
        {"channel": ["dp"], "selection": "bernoulli"},
        "selection 'bernoulli' does not ensure this",
    ),
    "noise with empty places": (
        {"channel": ["adaptive_clip:multiplier=1"], "selection": "availability"},
        "selection 'availability' does not",
    ),
    "noise with a choice by losses": (
        {"channel": ["dp"], "selection": "power_of_choice"},
        "selection 'power_of_choice' does not",
    ),
    "noise with several architectures": (
        {"channel": ["dp"], "algorithm": "fedproto", "model": "auto",
         "models": ["mlp:hidden=(8,)", "mlp:hidden=(4,8)"]},
        "a random number of clients of each architecture",
    ),
    "krum of too many": (
        {"aggregation": ["krum:byzantine=1,chosen=5"], "cohort": 5},
        "chosen of aggregation 'krum' is 5; expected at most cohort - byzantine = 4",
    ),
    "krum by architecture": (
        {"aggregation": ["krum"], "cohort": 5, "algorithm": "heterofl", "model": "auto",
         "models": ["mlp:hidden=(8,)", "mlp:hidden=(4,)"]},
        "aggregation 'krum' needs a known number of uploads, but heterofl aggregates",
    ),
    "krum": (
        {"aggregation": ["krum:byzantine=2"]},
        "cohort is 3; expected at least 2 * byzantine + 3 = 7 for aggregation 'krum'",
    ),
    "no channel": (
        {"channel": ["krum:byzantine=2"]},
        "unknown channel 'krum'; known: ",
    ),
    "nobody": (
        {"channel": ["sign_flip:attackers=0.01"]},
        "attackers is 0.01, which is nobody of 10 clients",
    ),
    "two shares": (
        {"channel": ["ipm:attackers=0.3"], "noise": "poison:attackers=0.2"},
        "attackers is 0.3 in the channel and 0.2 in noise; give one share",
    ),
    "poison of too many": (
        {"noise": "poison:attackers=1.5"}, "attackers is 1.5; expected a share",
    ),
    "unseen": (
        {"noise": "poison:attackers=0.3", "unseen": 0.2},
        "noise is 'poison' and unseen is set",
    ),
    "told apart": (
        {"channel": ["dp"], "algorithm": "fedamp"},
        "needs each client's own upload",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if "architecture" in name else ())
        for name in REFUSED
    ],
)
def test_bad_channels_of_a_run_get_one_line(name, tmp_path):
    settings, says = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        finished(JOB.replace(**settings), tmp_path)
    assert "\n" not in str(refused.value)


def test_noise_needs_devices_that_are_always_available(tmp_path):
    file = tmp_path / "devices.npz"
    np.savez(file, step=np.ones(10), down=np.ones(10), up=np.ones(10),
             availability=np.linspace(0.5, 1, 10))  # fmt: skip
    job = JOB.replace(channel=["dp"], profile=f"file:path={file}")
    with pytest.raises(ValueError, match="may be absent; choose"):
        finished(job, tmp_path / "run")
    parts(job.replace(channel=["dp:multiplier=0"]))


def test_labels_poisoned_by_another_seed_are_refused(tmp_path):
    rows = data.load("digits")
    given = data.federate(rows, "shards:per_client=2", num_clients=10, seed=3,
                          noise="poison:attackers=0.3")  # fmt: skip
    job = JOB.replace(noise="poison:attackers=0.3", out=str(tmp_path / "run"))
    with pytest.raises(ValueError, match="seed"):
        run.run(job, given, quiet=True, report=False)
