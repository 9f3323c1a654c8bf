import json
import shutil

import numpy as np
import pytest

from pfljax.report.groups import group_runs
from pfljax.report.runs import accuracy_curve, make_label, read_run
from pfljax.runs.folder import FolderError, read_config
from pfljax.runtime.files import FileError


@pytest.fixture
def broken(run_folder, tmp_path):
    """A copy of the run that a test may damage."""
    return shutil.copytree(run_folder, tmp_path / "run")


def test_read_run_gives_what_was_written(run_folder):
    run = read_run(run_folder)
    assert run.label == "SuPerFed-MM"
    assert len(run.rounds) == 40
    assert run.seconds == 20
    assert run.per_client["personal/test/accuracy"].shape == (10, 20)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", "{", "config.json is missing or damaged"),
        ("config.json", '{"algorithm": "x", "seed": 0}', "its format is None"),
        ("partition.npz", "[]", "partition.npz is damaged"),
        ("metrics.jsonl", '{"round": 1}\n{"rou', "metrics.jsonl is missing or damaged"),
        ("clients.npz", "no zip", "clients.npz is missing or damaged"),
    ],
)
def test_damaged_file_is_named(broken, name, text, message):
    (broken / name).write_text(text)
    with pytest.raises(FileError, match=message):
        read_run(broken)


def test_a_setting_that_was_since_removed_is_reported(broken):
    path = broken / "config.json"
    settings = json.loads(path.read_text())
    settings["judge_untrained"] = True
    path.write_text(json.dumps(settings))
    with pytest.raises(FolderError, match="unknown setting 'judge_untrained'"):
        read_config(broken)
    assert read_run(broken).config["judge_untrained"] is True


def test_truncated_arrays_are_named(broken):
    path = broken / "clients.npz"
    path.write_bytes(path.read_bytes()[:4000])
    with pytest.raises(FileError, match=r"clients\.npz is missing or damaged"):
        read_run(broken)


@pytest.mark.parametrize("name", ["metrics.jsonl", "clients.npz"])
def test_missing_file_is_named(broken, name):
    (broken / name).unlink()
    with pytest.raises(FileError, match=f"{name} is missing"):
        read_run(broken)


def test_an_unfinished_run_is_refused(broken):
    (broken / "summary.json").unlink()
    with pytest.raises(ValueError, match="is unfinished"):
        read_run(broken)


def test_folders_that_are_no_runs(tmp_path):
    with pytest.raises(ValueError, match="not a run folder"):
        read_run(tmp_path)
    with pytest.raises(ValueError, match="is not a run folder"):
        read_run(tmp_path / "none")


def test_label_leaves_out_defaults():
    config = {"algorithm": "superfed", "hyper": {"nu": 2.0, "mu": 0.01}, "label": None}
    assert make_label(config) == "superfed mu=0.01 nu=2.0"
    assert make_label(config, {"nu": 2.0, "mu": 0.5}) == "superfed mu=0.01"
    assert make_label(config | {"label": "Mine"}) == "Mine"


def test_groups_differ_in_more_than_the_seed(make_run, tmp_path):
    folders = [
        make_run(tmp_path / "b", "ditto", 2),
        make_run(tmp_path / "a", "ditto", 1),
        make_run(tmp_path / "c", "ditto", 1, lr=0.1),
    ]
    groups = group_runs(map(read_run, folders))
    assert [g.label for g in groups] == ["ditto (lr=0.01)", "ditto (lr=0.1)"]
    assert [run.config["seed"] for run in groups[0].runs] == [1, 2]


def test_the_same_seed_twice_is_refused(make_run, tmp_path):
    runs = [read_run(make_run(tmp_path / name, "ditto", 1)) for name in "ab"]
    with pytest.raises(ValueError, match="same settings and seed 1"):
        group_runs(runs)


def test_curve_is_the_mean_over_clients(run_folder):
    rounds, means = accuracy_curve(read_run(run_folder))
    with np.load(run_folder / "clients.npz") as file:
        np.testing.assert_array_equal(rounds, file["round"])
        np.testing.assert_allclose(
            means, file["personal/test/accuracy"].mean(1), rtol=1e-6
        )


def test_null_metrics_are_read_as_undefined(broken):
    lines = [json.loads(x) for x in (broken / "metrics.jsonl").open()]
    for record in lines[3]["evaluations"]:
        record["metrics"]["accuracy"] = None
    (broken / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert np.isnan(accuracy_curve(read_run(broken))[1][0])
