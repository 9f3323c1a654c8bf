"""The file of a run of a sweep is read for that run, or refused in one line."""

import shutil

import numpy as np
import pytest

from pfljax import Experiment
from pfljax.runs import folder
from pfljax.runs.folder import FolderError
from pfljax.sweep import results, run_files
from pfljax.sweep.results import Result

VALUES = [{"mu": 0.0, "seed": 1}, {"mu": 0.1, "seed": 1}]
NAMES = ["0123456789abcdef", "fedcba9876543210"]


def result(values):
    rng = np.random.default_rng(int(10 * values["mu"]))
    return Result(
        values=values,
        round=np.asarray([2, 3]),
        train_loss=rng.random(3, np.float32),
        metrics={"personal/test/accuracy": rng.random((2, 6), np.float32)},
        path={"test/accuracy": rng.random((6, 11), np.float32)},
        size={"test": np.arange(6, dtype=np.int32)},
    )


@pytest.fixture
def written(tmp_path):
    """The files of two runs."""
    paths = [tmp_path / "runs" / f"{name}.npz" for name in NAMES]
    for path, values in zip(paths, VALUES, strict=True):
        run_files.write(path, result(values))
    return paths


def test_a_run_comes_back(written):
    for path, values in zip(written, VALUES, strict=True):
        run = run_files.read(path, values)
        wanted = result(values)
        assert run.values == values
        assert run.train_loss.tobytes() == wanted.train_loss.tobytes()
        for field in run_files.BY_NAME:
            ours, theirs = getattr(run, field), getattr(wanted, field)
            assert list(ours) == list(theirs)
            assert all(ours[n].tobytes() == theirs[n].tobytes() for n in ours)


def swap(a, b):
    a.rename(a.with_suffix(".old"))
    b.rename(a)
    a.with_suffix(".old").rename(b)


def change(**arrays):
    """Writes the file anew with other arrays, as NumPy does; None leaves one out."""

    def damage(path, _):
        content = folder.read_arrays(path) | arrays
        np.savez(path, **{k: v for k, v in content.items() if v is not None})

    return damage


def cut(path, _):
    path.write_bytes(path.read_bytes()[:-40])


DAMAGES = {
    "swapped": swap,
    "copied": lambda a, b: shutil.copy(b, a),
    "cut": cut,
    "empty": lambda a, _: np.savez(a),
    "other arrays": lambda a, _: np.savez(a, weights=np.zeros(3)),
    "of nobody": change(point=None),
    "of no JSON": change(point=np.array("{")),
    "of a list": change(point=np.array("[]")),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_another_file_in_its_place_is_refused(written, how):
    DAMAGES[how](*written)
    with pytest.raises(FolderError, match=r"0123456789abcdef\.npz is damaged.* remove"):
        run_files.read(written[0], VALUES[0])


def test_a_sweep_without_a_folder_has_one_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = Experiment("fedprox")
    over = {"mu": [0.0, 0.1], "seed": [0, 1]}
    folders = [
        results.default_folder(plain, over),
        results.default_folder(plain.replace(lr=0.5), over),
        results.default_folder(plain, {"mu": [0.0]}),
    ]
    assert folders[0] == "runs/digits-fedprox-sweep-mu,seed"
    assert folders[1].startswith(f"{folders[0]}-lr=0.5-")
    assert folders[2] == "runs/digits-fedprox-sweep-mu"
    # Other values add to a sweep; what is swept has no value of the experiment's.
    more = {"seed": [5], "mu": [1.0]}
    assert results.default_folder(plain.replace(seed=3), more) == folders[0]
    assert (
        results.default_folder(plain.replace(algorithm="fedprox:mu=3"), over)
        == folders[0]
    )
