"""A refused run leaves no folder, and keeps one that existed before."""

import pytest

from pfljax import run
from pfljax.runs import folder
from pfljax.runs.folder import FolderError
from tiny import TINY

REFUSED = {
    "no such data": {"dataset": "npz:file=nowhere.npz"},
    "too many clients": {"clients": 5000},
    "a cohort too large": {"cohort": 50},
    "a model of other rows": {"model": "cnn_cifar:hidden=3"},
    "no such method": {"algorithm": "fedfoo"},
    "a name too long": {"out": "o" * 300},
}


def refused(job):
    with pytest.raises((ValueError, RuntimeError, OSError)) as error:
        run(job, quiet=True)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("why", REFUSED)
def test_a_refused_run_leaves_no_folder(why, tmp_path):
    changes = REFUSED[why]
    name = changes.get("out", "run")
    refused(TINY.replace(**changes | {"out": str(tmp_path / "new" / "deep" / name)}))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_stays_with_what_it_holds(tmp_path):
    before = tmp_path / "mine"
    before.mkdir()
    refused(TINY.replace(clients=5000, out=str(before)))
    refused(TINY.replace(clients=5000, out=str(before / "new")))
    assert list(tmp_path.rglob("*")) == [before]
    (before / "notes.txt").write_text("mine")
    refused(TINY.replace(clients=5000, out=str(before)))
    assert [path.name for path in before.iterdir()] == ["notes.txt"]


def test_the_lock_of_another_process_stays(tmp_path):
    with (
        folder.lock(tmp_path / "run"),
        pytest.raises(FolderError, match="another process"),
        folder.lock(tmp_path / "run"),
    ):
        pass
    assert (tmp_path / "run" / ".lock").exists()
