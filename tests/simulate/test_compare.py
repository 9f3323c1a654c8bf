"""A grid of methods and seeds: run, continued, and put into a table."""

import inspect
import json
import shutil

import jax
import numpy as np
import pandas as pd
import pytest
from flax import linen as nn

import compiling
import pfljax
import tiny
from pfljax import Experiment, data, models, report, simulate
from pfljax.runs.folder import FolderError, read_partition
from pfljax.runtime import programs
from pfljax.simulate import simulation
from pfljax.simulate.compare import compare, grid
from pfljax.simulate.run import run

BASE = Experiment(
    model="logistic",
    clients=5,
    cohort=2,
    rounds=2,
    epochs=1,
    batch_size=20,
    eval_every=2,
)
GRID = [BASE, BASE.replace(algorithm="ditto:lam=1.0")]
FOLDERS = {f"{name}/s{seed}" for name in ("local", "fedavg", "ditto-lam=1.0")
           for seed in (0, 1)}  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """(folder, screen) of a finished grid."""
    out = tmp_path_factory.mktemp("grid") / "out"
    with tiny.undrawn():
        return out, compare(GRID, (0, 1), str(out), finetuned=False, quiet=True)


def numbers(out):
    """The tidy table, without what was measured in seconds."""
    return pd.read_csv(out / "comparison.csv").drop(columns="seconds")


def summaries(out):
    return {str(p.parent.relative_to(out)): p for p in out.glob("*/*/summary.json")}


def logs(out):
    return {str(p.parent.relative_to(out)): p for p in out.glob("*/*/metrics.jsonl")}


def test_a_folder_a_run_and_local_joins(done):
    assert set(summaries(done[0])) == FOLDERS


def test_every_method_has_the_same_clients(done):
    for seed in (0, 1):
        found = [read_partition(path) for path in done[0].glob(f"*/s{seed}")]
        assert len(found) == 3
        assert all(manifest == found[0] for manifest in found)


def test_the_screen_has_a_row_for_each_method(done):
    out, screen = done
    lines = screen.splitlines()
    for label in ("local", "fedavg", "ditto lam=1.0"):
        assert any(line.startswith(f"{label} ") for line in lines), label
    assert len(lines) <= 28
    names = {path.name for path in out.iterdir() if path.is_file()}
    assert names == {"comparison.html", "comparison.csv"}
    # One page for all.
    assert not [*out.glob("*/*/report.html")]


@pytest.mark.usefixtures("undrawn")
def test_what_is_missing_is_run_and_no_more(done, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(done[0], out)
    shutil.rmtree(out / "fedavg" / "s1")
    times = {name: p.stat().st_mtime_ns for name, p in logs(out).items()}
    compare(GRID, (0, 1), str(out), finetuned=False, quiet=True)
    pd.testing.assert_frame_equal(numbers(out), numbers(done[0]))
    now = {name: p.stat().st_mtime_ns for name, p in logs(out).items()}
    assert {name for name in now if now[name] != times.get(name)} == {"fedavg/s1"}


def test_the_baseline_is_the_first_of_each_seed_whatever_its_name():
    named = BASE.replace(algorithm="local", label="On their own")
    planned = grid([*GRID, named], (0, 1), "out", finetuned=False)
    assert [e.out for e in planned] == [
        "out/On-their-own/s0", "out/On-their-own/s1",
        "out/fedavg/s0", "out/fedavg/s1",
        "out/ditto-lam=1.0/s0", "out/ditto-lam=1.0/s1",
    ]  # fmt: skip


@pytest.mark.slow
def test_no_program_is_compiled_twice(tmp_path, monkeypatch):
    """Not even where the programs of one method alone stay."""
    pfljax.forget_programs()
    # Not by JAX's own cache: it would hide what is built twice.
    monkeypatch.setattr(programs, "SETTINGS", 1)
    monkeypatch.setattr(programs, "_caches", [*programs._caches])
    monkeypatch.setattr(jax, "clear_caches", lambda: None)
    bounded = programs.memoize(inspect.unwrap(simulation._simulation))
    monkeypatch.setattr(simulation, "_simulation", bounded)
    compiled = {}

    def counted(experiment, *args, **kwargs):
        with compiling.watch() as works:
            run(experiment, *args, **kwargs)
        names = [work.program for work in works if work.phase == "compile"]
        compiled[experiment.algorithm.name, experiment.seed] = names

    monkeypatch.setattr(simulate.compare, "run", counted)
    monkeypatch.setattr(report, "write_comparison", lambda runs, out, **options: "")
    methods = ("local", "fedavg", "scaffold")
    jobs = [BASE.replace(algorithm=name, rounds=1) for name in methods]
    compare(jobs, (0, 1), str(tmp_path), finetuned=False, quiet=True)
    first = {name: compiled.pop((name, 0)) for name in methods}
    assert set(map(tuple, compiled.values())) == {()}
    # The server's model is evaluated by one program for all methods.
    assert len(first["scaffold"]) < len(first["fedavg"]) <= len(first["local"]) + 1


@pytest.mark.slow
def test_clients_and_a_model_of_ones_own(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 3))
    arrays = data.from_arrays(x, np.arange(60) % 3, name="mine")

    def mine(seed):
        return data.federate(arrays, "iid", num_clients=4, seed=seed)

    module = models.Network(nn.Dense(4), nn.Dense(3))
    given = {"federation": mine, "task": models.task(module, (3,)), "quiet": True}
    given["finetuned"] = False
    job = BASE.replace(dataset="mine", model="mine")
    built = simulation._simulation.cache_info().misses
    compare([job], (0, 1), str(tmp_path / "out"), local=False, **given)
    assert simulation._simulation.cache_info().misses == built + 1  # for both seeds
    for seed in (0, 1):
        place = tmp_path / "out" / "fedavg" / f"s{seed}"
        manifest = read_partition(place)
        assert (manifest["given"], manifest["dataset"]) == (True, "mine")
        assert manifest["sha256"] == mine(seed).manifest["sha256"]
        assert json.loads((place / "config.json").read_text())["model"] == "mine"
    with pytest.raises(RuntimeError, match="was started on other data"):
        compare([job], (0,), str(tmp_path / "out"), **given | {"federation": mine(1)})


@pytest.mark.parametrize("label", ["..", ".", "...."])
def test_a_label_that_names_another_folder_is_refused(label):
    with pytest.raises(ValueError, match="expected letters or digits in it"):
        grid([Experiment("fedavg", label=label)], [0], "out", local=False)


def test_local_may_be_left_out():
    planned = grid(GRID, (0,), "out", local=False)
    assert [e.algorithm.name for e in planned] == ["fedavg", "ditto", "fedavg"]


TUNED = BASE.replace(algorithm="fedavg:finetune=3")
SEVERAL = BASE.replace(algorithm="local", models=["mlp", "twonn"])


@pytest.mark.parametrize(
    ("experiments", "options", "steps"),
    [
        (GRID, {}, [0, 0, 0, 20]),
        (GRID, {"finetuned": False}, [0, 0, 0]),
        ([*GRID, TUNED], {}, [0, 0, 0, 3]),  # its own stands for it
        ([SEVERAL], {}, [0]),  # models of several architectures have no mean
    ],
)
def test_fedavg_with_finetuning_joins(experiments, options, steps):
    planned = grid(experiments, (0,), "out", **options)
    assert [e.algorithm.options.get("finetune", 0) for e in planned] == steps


@pytest.mark.parametrize("labels", [("a", "a"), ("a b", "a-b")])
def test_two_experiments_of_one_folder_are_refused(labels):
    twins = [BASE.replace(label=label) for label in labels]
    with pytest.raises(
        ValueError, match=r"have the same label: .*; set Experiment\.label"
    ):
        grid(twins, (0,), "out")


def test_without_out_runs_lie_where_they_are_made():
    (job,) = grid([BASE.replace(algorithm="fedavg")], np.arange(1), "", False, False)
    assert (job.seed, type(job.seed)) == (0, int)
    assert job.folder == "fedavg/s0"


def test_the_folder_of_a_run_holds_no_comparison(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FolderError, match="is the folder of a run"):
        compare([Experiment("fedper")], [0], str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
