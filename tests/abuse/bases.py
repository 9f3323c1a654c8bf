"""Folders of runs in which wrong inputs begin: made once, then copied."""

import os
import shlex
import shutil
from pathlib import Path

from abuse import folders, jobs
from abuse.jobs import Job

PLACE = "ABUSE_BASES"  # the variable that names their folder
ROUNDS = "--rounds 6 --eval-every 2 --epochs 1"
COMMANDS = {
    "run": f"run --algorithm fedavg {ROUNDS}",
    "disk": f"run --algorithm ditto {ROUNDS} --store disk",
    "host": f"run --algorithm ditto {ROUNDS} --store host",
    "sweep": f"sweep --algorithm fedprox {ROUNDS} --over mu 0.0 0.1",
}


def finished(name: str) -> Path:
    """The folder of the whole run or sweep, made when it is first asked for."""
    place = Path(os.environ[PLACE]) / name
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        jobs.finish(Job(shlex.split(COMMANDS[name]), jobs.same_run), place)
    return place


def copied(name: str, to: Path, cut: bool = False) -> Path:
    """A copy of it; cut, as it was before its last checkpoint."""
    shutil.copytree(finished(name), to)
    if cut:
        folders.take_back(to, rounds=6)
    return to
