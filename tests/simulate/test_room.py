"""What a run may write is told where the disk has less left."""

import collections
import shutil

import pytest

import tiny
from pfljax import run
from pfljax.simulate import room, simulation
from pfljax.simulate.federation import build_federation

# A model that outweighs the files which describe its checkpoints.
DITTO = tiny.TINY.replace(
    algorithm="ditto", model="mlp:hidden=(2000,)", rounds=3, eval_every=1
)
Usage = collections.namedtuple("Usage", "total used free")


def made(store):
    job = DITTO.replace(store=store)
    return simulation.simulation(job, build_federation(job)[0])


@pytest.mark.slow
@pytest.mark.parametrize("store", ["device", "host", "disk"])
def test_a_run_writes_no_more_than_was_counted(store, tmp_path):
    job = DITTO.replace(store=store, out=str(tmp_path / "run"))
    run(job, quiet=True, report=False)
    written = sum(file.stat().st_blocks * 512 for file in (tmp_path / "run").rglob("*"))
    needed = room.bytes_needed(made(store), job)
    # Checkpoints are one less than while one is written.
    assert written < needed < 2 * written


@pytest.mark.parametrize("store", ["device", "disk"])
def test_too_small_a_disk_is_told(store, tmp_path, monkeypatch):
    sim = made(store)
    job = DITTO.replace(store=store)
    needed = room.bytes_needed(sim, job)
    for free, warnings in ((needed, 0), (needed - 1, 1)):
        usage = Usage(needed, 0, free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: usage)
        said = []
        room.check(tmp_path, sim, job, said.append)
        assert len(said) == warnings
    assert said[0].startswith("pfljax: warning: the run may take 0.0 GB of disk, ")
