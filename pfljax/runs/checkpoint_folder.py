"""The checkpoints of a folder by their names, without reading them."""

import itertools
import re
from pathlib import Path

from pfljax.runtime import documents, files
from pfljax.runtime.files import CheckpointError

ROUND = re.compile("0|[1-9][0-9]*")  # the name of a checkpoint


def saved_rounds(folder: Path) -> list[int]:
    """Rounds with a finished checkpoint, ascending."""
    if not folder.is_dir():
        return []
    return sorted(
        int(path.name)
        for path in folder.iterdir()
        if ROUND.fullmatch(path.name) and path.is_dir()
    )


def refuse_odd_entries(folder: Path) -> None:
    """Refuses links and pipes, and files that have the name of a checkpoint."""
    if not folder.exists():
        return
    odd = files.odd_entry(folder)
    for path in folder.iterdir():
        if ROUND.fullmatch(path.name) and not path.is_dir():
            odd = odd or f"{path} is a file; expected a checkpoint; remove it"
    if odd:
        raise CheckpointError(odd)


def is_listed(path: Path) -> bool:
    """Whether Orbax can list it, which it does with all before it writes another."""
    try:
        documents.read(path / "_CHECKPOINT_METADATA")
    except files.FileError:
        return False
    return True


def put_aside(path: Path) -> str:
    """Renames a damaged checkpoint to a name that is none, which comes back."""
    names = (f"{path.name}.damaged{copy or ''}" for copy in itertools.count())
    free = (path.with_name(name) for name in names if not path.with_name(name).exists())
    return str(path.rename(next(free)))
