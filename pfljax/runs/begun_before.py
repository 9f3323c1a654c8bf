"""Runs in the default folders of an older pfljax, whose names told fewer settings."""

from pathlib import Path

from pfljax.runs import config
from pfljax.runs.settings import Experiment, default_folder
from pfljax.runtime import documents
from pfljax.runtime.files import FileError


def settled(experiment: Experiment, name: str) -> str:
    """`name`, the folder of a run without `out`, or where an older pfljax began it.

    `experiment` has all options of its method written out.
    """
    older = default_folder(experiment)
    if Path(name).exists() or not _holds(Path(older), experiment):
        return name
    return older


def _holds(folder: Path, experiment: Experiment) -> bool:
    """Whether the run in a folder has the same settings."""
    file = folder / "config.json"
    if not file.exists():
        return False
    try:
        old = config.from_dict(documents.read(file))
    # What cannot be read is another run's: this one has a folder of its own.
    except (ValueError, FileError):
        return False
    return not config.difference(old, experiment)
