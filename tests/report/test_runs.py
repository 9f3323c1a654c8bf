"""Records of finished runs, as reports read them; and their groups over seeds."""

import json
import shutil

import numpy as np
import pytest

from pfljax.report.curves import make_curve
from pfljax.report.seeds import group_runs
from pfljax.runs.result import result
from pfljax.runtime.files import FileError


@pytest.fixture
def broken(run_folder, tmp_path):
    """A copy of the run that a test may damage."""
    return shutil.copytree(run_folder, tmp_path / "run")


def read_all(folder):
    run = result(folder)
    return run.experiment, run.environment, run.partition, run.metrics, run.clients


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", "{", "config.json is missing or damaged"),
        ("config.json", '{"algorithm": "x", "seed": 0}', "its format is None"),
        ("partition.npz", "[]", "partition.npz is damaged"),
        ("metrics.jsonl", '{"round": 1}\n{"rou', "metrics.jsonl is missing or damaged"),
        ("clients.npz", "no zip", "clients.npz is damaged"),
    ],
)
def test_a_damaged_file_is_named(broken, name, text, message):
    (broken / name).write_text(text)
    with pytest.raises(FileError, match=message):
        read_all(broken)


@pytest.mark.parametrize("name", ["metrics.jsonl", "clients.npz"])
def test_a_missing_file_is_named(broken, name):
    (broken / name).unlink()
    with pytest.raises(FileError, match=f"{name} is missing"):
        read_all(broken)


def test_a_setting_of_another_version_is_refused(broken):
    path = broken / "config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"some_option": True}))
    with pytest.raises(FileError, match="unknown setting 'some_option'"):
        read_all(broken)


def test_groups_differ_in_more_than_the_seed(make_run, tmp_path):
    folders = [
        make_run(tmp_path / "b", "ditto", 2),
        make_run(tmp_path / "a", "ditto", 1),
        make_run(tmp_path / "c", "ditto", 1, lr=0.1),
    ]
    groups = group_runs(map(result, folders))
    assert [g.label for g in groups] == ["ditto (lr=0.01)", "ditto (lr=0.1)"]
    assert [run.experiment.seed for run in groups[0].runs] == [1, 2]


def test_the_same_seed_twice_is_refused(make_run, tmp_path):
    runs = [result(make_run(tmp_path / name, "ditto", 1)) for name in "ab"]
    with pytest.raises(ValueError, match="same settings and seed 1"):
        group_runs(runs)


def test_a_curve_is_the_mean_over_clients(run_folder):
    curve = make_curve(result(run_folder))
    with np.load(run_folder / "clients.npz") as file:
        np.testing.assert_array_equal(curve.rounds, file["round"])
        means = file["personal/test/accuracy"].mean(1)
    np.testing.assert_allclose(curve.mean, means, rtol=1e-6)


def test_means_that_are_not_finite_are_nan(broken):
    lines = [json.loads(x) for x in (broken / "metrics.jsonl").read_text().splitlines()]
    for record in lines[3]["evaluations"]:
        record["metrics"]["accuracy"]["mean"] = None
    (broken / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert np.isnan(make_curve(result(broken)).mean[0])
