"""Files of a run folder: whole or not there, and claimed by one run."""

import json

import numpy as np
import pytest

import tiny
from pfljax import Experiment
from pfljax.runs import checks, claims, folder, log
from pfljax.runs.folder import FolderError

MANIFEST = {
    "sha256": "abc",
    "given": False,
    "clients": [0, 1],
    "num_classes": 2,
    "sizes": {"train": [3, 4]},
    "class_histogram": [[1, 2], [4, 0]],
}


def begun(path, experiment=None, manifest=None):
    """A folder as it is when the rounds begin."""
    with folder.lock(path):
        claims.claim(path, experiment or tiny.TINY)
        claims.begin(path, experiment or tiny.TINY, manifest or MANIFEST, 1)
        folder.write_partition(path, manifest or MANIFEST, {})
    return path


def test_a_begun_run_is_described(tmp_path):
    begun(tmp_path / "deep" / "run")
    run = tmp_path / "deep" / "run"
    assert folder.read_config(run) == tiny.TINY
    assert folder.read_partition(run) == MANIFEST
    assert folder.read_json(run / "environment.json")["packages"]["jax"]
    assert not folder.is_finished(run)


def test_a_run_is_finished_with_its_report(tmp_path):
    last = {"round": 3, "evaluations": []}
    folder.write_json(tmp_path / "summary.json", {"rounds": 3, "last": last})
    assert not folder.is_finished(tmp_path)
    (tmp_path / "report.html").write_text("<html></html>\n")
    assert folder.is_finished(tmp_path)


def test_a_folder_of_runs_names_one_of_them(tmp_path):
    begun(tmp_path / "lam=1" / "s0")
    begun(tmp_path / "lam=1" / "s1")
    with pytest.raises(
        FolderError, match=r"it has 2 runs; name one, such as .*lam=1/s0"
    ):
        folder.read_config(tmp_path)


def test_one_process_at_a_time(tmp_path):
    with (
        folder.lock(tmp_path),
        pytest.raises(FolderError, match="another process is running in"),
        folder.lock(tmp_path),
    ):
        pass
    with folder.lock(tmp_path):  # free again
        pass


def test_a_kill_between_two_files_does_no_harm(tmp_path):
    (tmp_path / ".lock").write_text("")
    (tmp_path / "config.json.part").write_text("{")
    begun(tmp_path)
    (tmp_path / "environment.json").unlink()
    (tmp_path / "partition.npz").unlink()
    begun(tmp_path)
    assert (tmp_path / "environment.json").exists()
    assert folder.read_partition(tmp_path) == MANIFEST


def test_what_was_begun_stays_as_it_was(tmp_path):
    begun(tmp_path)
    before = (tmp_path / "config.json").read_text()
    begun(tmp_path, tiny.TINY.replace(label="new name"))
    assert (tmp_path / "config.json").read_text() == before


def test_another_run_is_refused_with_the_settings_that_differ(tmp_path):
    begun(tmp_path)
    with pytest.raises(FolderError, match=r"\(lr: 0.05 -> 0.1; cohort: 3 -> 2\);"):
        begun(tmp_path, tiny.TINY.replace(lr=0.1, cohort=2))


@pytest.mark.parametrize("other", [{"sha256": "abd"}, {"clients": [0, 2]}])
def test_other_data_are_refused(tmp_path, other):
    begun(tmp_path)
    with pytest.raises(FolderError, match="was started on other data"):
        begun(tmp_path, manifest=MANIFEST | other)


@pytest.mark.parametrize("other", [{"given": False}, {"x_crc32": 2}])
def test_other_examples_given_in_python_are_refused(tmp_path, other):
    given = MANIFEST | {"given": True, "x_crc32": 1}
    begun(tmp_path, manifest=given)
    with pytest.raises(FolderError, match="was started on other data"):
        begun(tmp_path, manifest=given | other)
    with pytest.raises(FolderError, match=r"its own federation in Python; .*tion=\.\."):
        claims.check_python(tmp_path)
    claims.check_python(tmp_path, federation="some")


def test_a_model_of_ones_own_is_asked_for(tmp_path):
    begun(tmp_path, tiny.TINY.replace(model="mine"))
    with pytest.raises(
        FolderError, match=r"its own task in Python; .* task=\.\.\.\), or"
    ):
        claims.check_python(tmp_path)
    claims.check_python(tmp_path, task="some")


def test_another_number_of_checkpoints_is_written_down(tmp_path):
    begun(tmp_path)
    claims.go_on(tmp_path, tiny.TINY.replace(keep_checkpoints=5))
    job = folder.read_config(tmp_path)
    assert (job.keep_checkpoints, job.label) == (5, None)


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(FolderError, match=r"not empty and not a run \(thesis.tex\)"):
        begun(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.json"
    folder.write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder.write_json(path, {"a": float("nan")})
    assert folder.read_json(path) == {"a": 1}


def test_lines_after_the_checkpoint_and_half_lines_are_cut(tmp_path):
    file = tmp_path / "log.jsonl"
    lines = [{"round": r, "loss": r / 3} for r in range(1, 6)]
    log.append(file, lines[:2])
    log.append(file, lines[2:])
    whole = file.read_text()
    file.write_text(whole + '{"round": 6, "lo')
    assert log.read(file, 9) == lines
    assert log.read(file, 3) == lines[:3]
    log.rewrite(file, lines[:3])
    assert [json.loads(line) for line in file.read_text().splitlines()] == lines[:3]
    assert log.read(tmp_path / "none.jsonl", 3) == []


def test_arrays_come_back_and_damage_is_named(tmp_path):
    path = tmp_path / "a.npz"
    assert folder.read_arrays(path) == {}
    folder.write_arrays(path, {"a/b": np.arange(3.0)})
    arrays = folder.read_arrays(path)
    assert list(arrays) == ["a/b"]  # NumPy 2.0 wrote options of `savez` as arrays
    assert arrays["a/b"].tolist() == [0, 1, 2]
    for damaged in (path.read_bytes()[:50], b"[]", b""):
        path.write_bytes(damaged)
        with pytest.raises(FolderError, match=r"a\.npz is damaged \("):
            folder.read_arrays(path)


def test_json_has_no_nan():
    assert folder.number(np.float32(0.5)) == 0.5
    assert folder.number(float("nan")) is None
    assert folder.number(float("inf")) is None


def test_the_default_folder_tells_data_method_and_seed():
    experiment = Experiment(algorithm="ditto", dataset="synthetic", seed=2)
    assert checks.resolve(experiment).folder == "runs/synthetic-ditto-s2"


def test_a_config_of_another_project_is_no_run(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    folder.check_not_own(tmp_path / "config.json")
    (tmp_path / ".lock").write_text("")
    folder.check_not_own(tmp_path / "comparison.html")
    with pytest.raises(FolderError, match="is a file of the run itself"):
        folder.check_not_own(tmp_path / "config.json")
