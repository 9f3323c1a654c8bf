"""A sweep: runs that equal `run`, few programs, failures, and several processes."""

import json
import logging
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tiny
from pfljax import Experiment
from pfljax import run as run_alone
from pfljax.runs import config, folder
from pfljax.runs.folder import FolderError
from pfljax.simulate import components, traced
from pfljax.simulate.federation import build_federation
from pfljax.simulate.shape import make_shape
from pfljax.sweep import Sweep, points, results, sweep, together
from pfljax.sweep import run as sweep_run

FEDAVG = Experiment(
    model="logistic",
    clients=6,
    cohort=3,
    rounds=3,
    epochs=1,
    batch_size=20,
    eval_every=2,
    devices=1,
)
DITTO = FEDAVG.replace(algorithm="ditto")
SUPERFED = FEDAVG.replace(algorithm="superfed")
OVER = {"lam": [0.0, 0.5], "seed": [0, 3]}


def assert_close(one, other):
    """Two runs gave the same, up to the last bits of numbers that are traced."""
    arrays = one.clients, other.clients
    assert arrays[0].keys() == arrays[1].keys()
    for name, values in arrays[0].items():
        np.testing.assert_allclose(
            values, arrays[1][name], rtol=1e-4, atol=1e-5, err_msg=name
        )
    losses = [[line["train_loss"] for line in each.metrics] for each in (one, other)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


def assert_as_alone(experiment, values, found, out):
    """A run of the sweep is what `run` gives."""
    own = points.set_values(experiment, values).replace(out=str(out))
    assert_close(found, run_alone(own, quiet=True, report=False))


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep of Ditto over OVER."""
    return sweep(DITTO, OVER, out=tmp_path_factory.mktemp("swept"))


def test_each_run_is_a_run_with_a_folder_of_its_own(swept, tmp_path):
    folders = [found.folder.relative_to(swept.folder) for found in swept.results]
    names = ["lam=0/s0", "lam=0/s3", "lam=0.5/s0", "lam=0.5/s3"]
    assert list(map(str, folders)) == names
    assert swept.values[1] == {"lam": 0.0, "seed": 3}
    assert swept.stacked("personal/test/accuracy").shape == (4, 2, 6)
    assert len({json.dumps(found.metrics) for found in swept.results}) == 4
    assert_as_alone(swept.experiment, swept.values[3], swept.results[3], tmp_path)


def test_other_values_compile_nothing_and_finished_runs_stay(swept, monkeypatch):
    # Called where a program is traced.
    built, put = [], traced.with_numbers
    monkeypatch.setattr(traced, "with_numbers", lambda *a: built.append(1) or put(*a))
    # Other tests may have displaced the programs.
    sweep(swept.experiment, {"lam": [0.6], "seed": [0]}, out=swept.folder)
    built.clear()
    before = (swept.results[0].folder / "summary.json").stat().st_mtime_ns
    more = sweep(swept.experiment, {"lam": [0.0, 0.7], "seed": [0]}, out=swept.folder)
    assert built == []
    assert [values["lam"] for values in more.values] == [0.0, 0.7]
    after = (swept.results[0].folder / "summary.json").stat().st_mtime_ns
    assert after == before
    about = folder.read_json(swept.folder / "sweep.json")
    assert about["over"] == {"lam": [0.0, 0.5, 0.6, 0.7], "seed": [0, 3]}


@pytest.mark.slow
def test_numbers_of_the_optimizer_and_the_server(tmp_path):
    numbers = {"lr_decay": [1.0, 0.5], "momentum": [0.0, 0.9]}
    job = FEDAVG.replace(schedule="cosine:decay_steps=3", server_optimizer="fedavgm")
    found = sweep(job, numbers | {"weight_decay": [0.01]}, out=tmp_path / "sweep")
    assert_as_alone(job, found.values[3], found.results[3], tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"algorithm": "superfed:start=0.0", "ood_examples": 30, "lr_decay": 0.9},
        {"algorithm": "fedavg", "profile": "speed_groups", "mode": "fedbuff:buffer=2"},
        {"profile": "speed_groups", "channel": "sign_flip:attackers=0.3"},
        {"algorithm": "fedavg", "unseen": 0.2, "eval_after_training": True,
         "dissimilarity": True},
        {"algorithm": "feddf:server_steps=20,server_lr=0.1", "public": 0.1},
        {"algorithm": "lg_fedavg", "models": ("mlp", "mlp:hidden=(64,64)")},
        {"algorithm": "apfl", "state_storage": "disk"},
    ],
)  # fmt: skip
def test_what_a_run_does_a_sweep_does(more, tmp_path):
    job = FEDAVG.replace(model="auto", clients=8, devices=None).replace(**more)
    found = sweep(job, {"lr": [0.05, 0.1]}, out=tmp_path / "sweep")
    assert not found.failed
    assert_as_alone(job, found.values[1], found.results[1], tmp_path / "run")


@pytest.mark.slow
def test_runs_under_one_vmap_are_those_one_by_one(swept, tmp_path, monkeypatch):
    over = OVER | {"seed": [0, 3, 5]}
    alone = sweep(swept.experiment, over, out=swept.folder)
    first = sweep(swept.experiment, OVER | {"seed": [3]}, out=tmp_path, lanes=2)
    found = sweep(swept.experiment, over, out=tmp_path, lanes=4)
    assert found.results[1].summary == first.results[0].summary
    for one, other in zip(found.results, alone.results, strict=True):
        assert_close(one, other)
    longer = swept.experiment.replace(rounds=5)
    together = sweep(longer, over, out=tmp_path, lanes=3)
    assert {found.rounds for found in together.results} == {5}
    alone = sweep(longer, OVER, out=swept.folder)
    assert_close(together.results[0], alone.results[0])


def kind_of(method):
    """The kind of an experiment by its shared settings and its traced names."""
    federation, _ = build_federation(FEDAVG)
    job = FEDAVG.replace(algorithm=method)
    shape = make_shape(job, federation)
    task = components.make_task(job, shape)
    kind = traced.make_kind(job, ["lr", "mu", "start", "mixing", "lam"], task, shape)
    return kind, kind.names


def test_a_number_is_traced_if_the_method_can_be_built_without_it():
    one, names = kind_of("superfed:mu=0.1,start=0.5,mixing=model")
    assert names == ("lr", "mu", "start")
    assert one == kind_of("superfed:mu=0.2,start=0.0,mixing=model")[0]
    assert one != kind_of("superfed:mu=0.1,start=0.5,mixing=layer")[0]
    assert kind_of("l2gd:lam=0.5")[1] == ("lr", "lam")


def broken(monkeypatch, wrong):
    """Lets the runs with these seeds fail."""

    def fail(experiment, *args, **options):
        if experiment.seed in wrong:
            # As JAX does of an error in a callback.
            logging.getLogger("jax._src.callback").error("Traceback ...")
            raise TypeError("a kernel\nof mine")
        return run(experiment, *args, **options)

    run = sweep_run.run
    monkeypatch.setattr(sweep_run, "run", fail)


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_fails_is_named_and_tried_again(
    tmp_path, monkeypatch, capsys, caplog
):
    over = {"lam": [0.5], "seed": [0, 1]}
    failing = f"{tmp_path}/lam=0.5/s0"
    with monkeypatch.context() as patch:
        broken(patch, [0])
        found = sweep(DITTO, over, out=tmp_path)
        assert found.failed == {failing: "TypeError: a kernel"}
        assert [values["seed"] for values in found.values] == [1]
        assert f"{failing} failed: TypeError: a kernel" in capsys.readouterr().err
        options = tiny.options(DITTO.replace(out=str(tmp_path)))
        swept = ["--over", "lam", "0.5", "--over", "seed", "0", "1"]
        code, out, errors = tiny.main("sweep", *options, *swept)
        assert code == 1, errors
        assert "lam=0.5" in out
        assert not caplog.records
    found = sweep(DITTO, over, out=tmp_path)
    assert not found.failed
    assert len(found.results) == 2


@pytest.mark.slow
def test_of_runs_under_one_vmap_only_those_fail_that_fail_alone(tmp_path, monkeypatch):
    def train_blocks(blocks, lanes):
        if any(block.run.experiment.seed == 1 for block in blocks):
            raise TypeError("a kernel")
        return train(blocks, lanes)

    train = together._train_blocks
    monkeypatch.setattr(together, "_train_blocks", train_blocks)
    broken(monkeypatch, [1])
    found = sweep(FEDAVG, {"seed": [0, 1, 2]}, out=tmp_path, lanes=3)
    assert found.failed == {f"{tmp_path}/fedavg/s1": "TypeError: a kernel"}
    assert [values["seed"] for values in found.values] == [0, 2]


def test_a_run_of_another_process_is_left_to_it(tmp_path, capsys):
    results.claim(tmp_path, DITTO, {"lam": [0.5], "seed": [0]})
    with folder.lock(tmp_path / "lam=0.5" / "s1"):
        found = sweep(DITTO, {"lam": [0.5], "seed": [0, 1]}, out=tmp_path)
    assert found.elsewhere == [f"{tmp_path}/lam=0.5/s1"]
    assert len(found.results) == 1
    assert "1 run left to other processes" in capsys.readouterr().err


def test_a_folder_holds_one_sweep(tmp_path):
    results.claim(tmp_path, FEDAVG, {"lr": [0.1]})
    before = (tmp_path / "sweep.json").read_bytes()
    for experiment, over, message in (
        (FEDAVG.replace(momentum=0.9), {"lr": [0.2]}, "momentum: 0.0 -> 0.9"),
        (FEDAVG, {"lr": [0.1], "seed": [0]}, "a sweep over lr, and not over lr, s"),
    ):
        with pytest.raises(FolderError, match=message):
            results.claim(tmp_path, experiment, over)
    assert (tmp_path / "sweep.json").read_bytes() == before
    results.claim(tmp_path, FEDAVG.replace(rounds=9), {"lr": [0.1]})  # more rounds


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"nothing": [1.0]}, "unknown setting or option of superfed 'nothing'; known"),
        ({"out": ["a"]}, "unknown setting or option of superfed 'out'"),
        ({"start": [0.5, 1.5]}, "start is 1.5"),
        ({"mixing": ["channel"]}, "mixing is 'channel'; expected"),
        ({"epochs": [1, 0]}, "epochs is 0; expected a finite number > 0"),
        ({"mu": [-1.0]}, "mu is -1.0; expected a finite number"),
        ({"mixing": ["model", "lyer"]}, "mixing is 'lyer'; expected"),
        ({"mu": [[0.1], 0.2]}, r"mu is \[0.1\]; expected numbers, texts"),
        (
            {"algorithm": ["l2gd"], "lam": [1.0, 1000.0]},
            r"rate lam \(1 - p\) / p",
        ),
        (
            {"algorithm": ["mapper"], "lowest": [0.2, 0.9]},
            "lowest is 0.9",
        ),
        ({"lr": [0.1, -1.0]}, "lr is -1.0; expected a finite number > 0"),
        ({"lr": 0.1}, "lr is 0.1, of type float; expected a list"),
        ({"lr": [0.1, 0.1]}, "give every value once"),
        ({"cohort": [3, 7]}, "cohort is 7, but there are 6 clients"),
        ({"seed": [-1]}, "seed is -1"),
        ({"seed": ()}, "seed is .*; expected a list"),
        ({"channel": ["clip:norm=0"]}, "channel 'clip': norm is 0; expected"),
        (
            {"channel": [("median",)]},
            r"channel is \('median',\); expected numbers, tex",
        ),
        (
            {"channel": [None, ""]},
            "are the same run; give one of them",
        ),
    ],
)
def test_what_cannot_be_swept_is_refused(over, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        sweep(SUPERFED, over, out=tmp_path / "new" / "deep")
    assert list(tmp_path.iterdir()) == []  # before anything runs


def test_a_channel_is_swept_by_what_stands_behind_its_option(tmp_path):
    texts = [None, "clip:norm=0.1", "clip:norm=0.1 gaussian:std=0.1"]
    swept = points.make(SUPERFED, {"channel": texts}, tmp_path)
    names = [[str(choice) for choice in point.experiment.channel] for point in swept]
    assert names == [[], ["clip:norm=0.1"], ["clip:norm=0.1", "gaussian:std=0.1"]]
    folders = {point.experiment.folder for point in swept}
    assert len(folders) == 3
    assert all(path.count("/") == str(tmp_path).count("/") + 2 for path in folders)


def test_the_folder_of_a_great_number_is_not_that_of_a_small_one(tmp_path):
    made = points.make(FEDAVG, {"lr": [1e20, 1e-20]}, tmp_path)
    folders = [Path(point.experiment.folder).parent.name for point in made]
    assert folders == ["lr=1e+20", "lr=1e-20"]


def test_each_part_is_left_out_once(tmp_path):
    job = FEDAVG.replace(algorithm="ditto:lam=2.0", momentum=0.9)
    over = {"without": [None, "momentum", "lam"], "seed": [0]}
    made = points.make(job, over, tmp_path)
    assert [point.experiment.label for point in made] == [
        "full", "without momentum", "without lam"
    ]  # fmt: skip
    found = [(p.experiment.momentum, p.experiment.algorithm.options) for p in made]
    assert found == [(0.9, {"lam": 2.0}), (0.0, {"lam": 2.0}), (0.9, {"lam": 0.1})]
    with pytest.raises(ValueError, match="lr_decay is 1"):
        points.make(job, {"without": [None, "lr_decay"]}, tmp_path)
    with pytest.raises(ValueError, match="unknown setting or option to leave out 'mo'"):
        points.make(job, {"without": ["mo"]}, tmp_path)


def test_runs_of_other_rounds_or_clients_cannot_be_stacked():
    def made(rounds, clients):
        arrays = {"round": np.array(rounds), "a": np.zeros((len(rounds), clients))}
        return SimpleNamespace(clients=arrays)

    for other in (made([1, 3], 4), made([1, 2], 5)):
        found = Sweep(None, FEDAVG, {}, [], [made([1, 2], 4), other])
        with pytest.raises(ValueError, match=r"cannot be stacked; take results\[i\]"):
            found.stacked("a")
    with pytest.raises(ValueError, match="have the metric 'b'; all have a, round"):
        found.stacked("b")


KILLED = """
import json, sys
from pfljax import Experiment
from pfljax.sweep import sweep
fields, over, options = json.loads(sys.argv[1])
sweep(Experiment(**fields), over, out=sys.argv[2], **options)
"""


@pytest.mark.slow
def test_two_processes_share_a_sweep_and_one_is_killed(tmp_path):
    long = FEDAVG.replace(algorithm="ditto", rounds=120, eval_every=40)
    over = {"lr": [0.02, 0.05, 0.1], "seed": [0, 1]}
    fields = config.to_json(long)
    arguments = json.dumps([fields, over, {"lanes": 2}])
    env = tiny.environment(tmp_path / "cache")

    def start(out):
        command = [sys.executable, "-c", KILLED, arguments, str(tmp_path / out)]
        return subprocess.Popen(command, env=env)

    assert start("whole").wait() == 0
    killed, other = start("shared"), start("shared")
    while not list((tmp_path / "shared").glob("*/s*/checkpoints/*")):
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert other.wait() == 0
    again = start("shared")  # as `scontrol requeue` starts it again
    assert again.wait() == 0
    for whole in sorted((tmp_path / "whole").glob("*/s*")):
        shared = tmp_path / "shared" / whole.parent.name / whole.name
        tiny.assert_same_run(shared, whole)
