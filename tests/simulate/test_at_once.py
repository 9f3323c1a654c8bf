"""Seeds of a method at once: which of them, and the same runs as one by one."""

import json
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import chex
import jax
import numpy as np
import pytest

import tiny
from pfljax import Experiment, data, report, run
from pfljax.runs.folder import read_json
from pfljax.runtime import compiling, devices
from pfljax.simulate import at_once
from pfljax.simulate.compare import compare
from pfljax.simulate.course import save_if_due
from pfljax.simulate.run_group import run_at_once

pytestmark = pytest.mark.slow

# Of five clients two devices have blocks of three: one row is nobody's.
JOB = Experiment(
    algorithm="ditto",
    model="mlp:hidden=(8,)",
    clients=5,
    cohort=2,
    rounds=4,
    epochs=1,
    batch_size=20,
    eval_every=2,
    public=0.1,
)
SEEDS = (0, 1)


def jobs(out, job=JOB, seeds=SEEDS):
    return [job.replace(seed=seed, out=str(out / f"s{seed}")) for seed in seeds]


def trained(out, job=JOB, seeds=SEEDS):
    """The folder `out`, with runs of these seeds at once."""
    run_at_once(jobs(out, job, seeds), [None] * len(seeds), quiet=True, report=False)
    return out


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("together"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    out = tmp_path_factory.mktemp("alone")
    for seed in SEEDS:
        trained(out, seeds=(seed,))
    return out


def test_progress_names_the_seed_that_is_shown_and_those_beside_it(tmp_path):
    seeds = [
        SimpleNamespace(experiment=job)
        for job in jobs(tmp_path, JOB.replace(label="ditto lam=1.0"), (3, 4, 5))
    ]
    assert at_once.name_of(seeds) == "ditto lam=1.0, seed 3 beside 4, 5"
    assert at_once.name_of(seeds[:1]) == "ditto lam=1.0, seed 3"


@pytest.mark.parametrize("seed", SEEDS)
def test_each_is_the_run_of_its_seed(together, alone, seed):
    folders = [out / f"s{seed}" for out in (together, alone)]
    ours, theirs = (dict(np.load(f / "per_client.npz")) for f in folders)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-4, err_msg=name)
    losses = []
    for folder in folders:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["train_loss"] for line in lines])
    np.testing.assert_allclose(*losses, rtol=1e-4)
    ours, theirs = (tiny.last_state(folder) for folder in folders)
    chex.assert_trees_all_close(ours.server, theirs.server, atol=1e-5)
    chex.assert_trees_all_close(ours.clients, theirs.clients, atol=1e-5)


def test_the_seeds_differ(together):
    first, second = (np.load(together / f"s{s}" / "per_client.npz") for s in SEEDS)
    name = "personal/test/loss"
    assert not np.allclose(first[name], second[name])


@pytest.mark.parametrize("saves", [1, 2, 3])
def test_ended_between_two_saves_they_go_on_with_the_same_bits(
    together, tmp_path, monkeypatch, saves
):
    """After the first save of one seed alone, of both, and where one has ended."""
    made = []

    def stop(course, standing):
        after = save_if_due(course, standing)
        made.extend([1] * (after.unsaved == 0))
        if len(made) == saves:
            raise InterruptedError
        return after

    with monkeypatch.context() as patch:
        patch.setattr("pfljax.simulate.course.save_if_due", stop)
        with pytest.raises(InterruptedError):
            trained(tmp_path)
    trained(tmp_path)
    for seed in SEEDS:
        tiny.assert_same_run(tmp_path / f"s{seed}", together / f"s{seed}")


def test_one_that_is_lost_is_made_again_with_the_same_bits(together, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(together, out)
    kept = (out / "s0" / "metrics.jsonl").stat().st_mtime_ns
    shutil.rmtree(out / "s1")
    # The folder is part of what a run is: a copy has another.
    run_at_once(
        [job.replace(out=str(out / f"s{i}")) for i, job in enumerate(jobs(out))],
        [None, None],
        quiet=True,
        report=False,
    )
    assert (out / "s0" / "metrics.jsonl").stat().st_mtime_ns == kept
    tiny.assert_same_run(out / "s1", together / "s1")


def test_those_that_do_not_fit_run_one_by_one(alone, tmp_path, monkeypatch):
    monkeypatch.setattr(at_once, "SHARE", 0.0)
    trained(tmp_path)
    for seed in SEEDS:
        tiny.assert_same_run(tmp_path / f"s{seed}", alone / f"s{seed}")


ALONE = {"local": False, "finetuned": False, "quiet": True}


def ragged(seed):
    """The clients of a seed, whose rows are as many as those of no other seed."""
    rng = np.random.default_rng(seed)
    count = 90 + 30 * seed
    arrays = data.from_arrays(rng.normal(size=(count, 3)), np.arange(count) % 3)
    return data.federate(arrays, "iid", num_clients=5, seed=seed)


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr(report, "write_run_report", lambda folder: None)
    monkeypatch.setattr(report, "write_comparison", lambda runs, out: "")


@pytest.mark.parametrize("lost", SEEDS)
def test_a_seed_that_was_trained_alone_is_made_again_alone(lost, tmp_path, no_figures):
    job = JOB.replace(dataset="mine", public=0.0)
    out = tmp_path / "out"

    def made():
        compare([job], SEEDS, str(out), federation=ragged, **ALONE)
        return [
            (out / "ditto" / f"s{seed}" / "metrics.jsonl").read_bytes()
            for seed in SEEDS
        ]

    first = made()
    shutil.rmtree(out / "ditto" / f"s{lost}")
    assert made() == first
    # Small sums may agree to the bit whichever program makes them.
    assert read_json(out / "ditto" / f"s{lost}" / "executor.json") == {"width": 1}


def test_a_run_that_goes_on_without_the_others_says_so(together, tmp_path, capsys):
    out = tmp_path / "s0"
    shutil.copytree(together / "s0", out)
    assert read_json(out / "executor.json") == {"width": 1, "at_once": 2}
    run(JOB.replace(seed=0, out=str(out), rounds=6), quiet=True, report=False)
    assert f"{out} was begun at once with other seeds" in capsys.readouterr().err


OWN = """
import jax, numpy as np
from pfljax.algorithms.fedavg import fedavg

def called(task, local):
    base = fedavg(task, local)

    def train(turn, w, client, data):
        client, w_k, metrics = base.train(turn, w, client, data)
        loss = metrics["loss"]
        metrics["loss"] = jax.pure_callback(
            np.float32, loss, loss, vmap_method="sequential"
        )
        return client, w_k, metrics

    return base._replace(train=train)
"""


def test_a_method_may_call_python(folder, tmp_path_factory):
    (folder / "called.py").write_text(OWN)
    out = trained(
        tmp_path_factory.mktemp("called"), JOB.replace(algorithm="called", rounds=2)
    )
    assert read_json(out / "s1/executor.json")["at_once"] == 2


def test_further_seeds_compile_nothing(together, tmp_path):
    trained(tmp_path / "first")
    with compiling.watched() as works:
        trained(tmp_path / "second", seeds=(2, 3))
    assert [work.program for work in works if work.phase == "compile"] == []


COMPARE = """
import json, sys
from pfljax import Experiment, report
from pfljax.simulate.compare import compare
report.write_run_report = lambda folder: (folder / "report.html").write_text("")
report.write_comparison = lambda runs, out: ""
job = Experiment(**json.loads(sys.argv[1]))
alone = {"local": False, "finetuned": False}
compare([job], (0, 1), sys.argv[2], quiet=True, **alone)
"""


def test_a_comparison_that_is_killed_ends_with_the_same_bits(tmp_path):
    env = tiny.environment(tmp_path / "cache", JAX_NUM_CPU_DEVICES="2")
    job = JOB.replace(rounds=24, eval_every=3, devices=2)

    def start(folder):
        words = [sys.executable, "-c", COMPARE, json.dumps(tiny.given(job))]
        return subprocess.Popen([*words, str(folder)], env=env)

    def saves(folder):
        return len(list(folder.glob("*/s?/checkpoints/[0-9]*")))

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start(whole).wait(timeout=300) == 0
    for count in (1, 2, 3):
        process = start(killed)
        # The newest two of each seed stay: later they are more from the beginning.
        while process.poll() is None and saves(killed) < count:
            time.sleep(0.0005)
        time.sleep(count / 50)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert start(killed).wait(timeout=300) == 0
    [method] = whole.iterdir()
    for seed in SEEDS:
        tiny.assert_same_run(killed / method.name / f"s{seed}", method / f"s{seed}")


SIZES = {
    "as many as the devices": ({}, 2, [2]),
    "twice as many": ({}, 4, [2, 2]),
    "one left over": ({}, 3, [1, 1, 1]),
    "one": ({}, 1, [1]),
    "one device": ({"devices": 1}, 2, [1, 1]),
    "a cohort of one": ({"cohort": 1}, 2, [1, 1]),
    "in a store": ({"store": "disk"}, 2, [1, 1]),
    "at home": ({"homes": True}, 2, [1, 1]),
    "at a width that is timed": ({"width": "auto"}, 2, [1, 1]),
}


@pytest.mark.parametrize("case", SIZES)
def test_groups_fill_the_devices(case, monkeypatch, tmp_path):
    settings, count, sizes = SIZES[case]

    def choose(wanted, cohort):
        return wanted or min(2, cohort)

    monkeypatch.setattr(devices, "choose", choose)
    job = JOB.replace(**settings)
    planned = jobs(tmp_path, job, range(count))
    groups = at_once.groups(planned)
    assert [len(group) for group in groups] == sizes
    assert [job for group in groups for job in group] == planned


def test_an_accelerator_takes_them_all(monkeypatch, tmp_path):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    [group] = at_once.groups(jobs(tmp_path, seeds=range(3)))
    assert len(group) == 3


def test_a_comparison_runs_its_seeds_at_once(tmp_path, monkeypatch):
    groups = []

    def count(runs, *rest):
        groups.append([(job.method.algorithm, job.seed) for job in runs])

    monkeypatch.setattr("pfljax.simulate.compare.run_at_once", count)
    monkeypatch.setattr(devices, "choose", lambda wanted, cohort: 2)
    monkeypatch.setattr(report, "write_comparison", lambda runs, out: "")
    compare([JOB], SEEDS, str(tmp_path), quiet=True)
    assert groups == [
        [("local", 0), ("local", 1)],
        [("ditto", 0), ("ditto", 1)],
        [("fedavg", 0), ("fedavg", 1)],
    ]
