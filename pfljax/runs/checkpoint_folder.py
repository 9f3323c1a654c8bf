"""The checkpoints of a folder by their names, without reading them."""

import itertools
import re
from pathlib import Path

from pfljax.runtime import documents, files
from pfljax.runtime.files import CheckpointError

ROUND = re.compile("0|[1-9][0-9]*")  # the name of a checkpoint
KEYS = ("threefry2x32", "rbg", "unsafe_rbg")  # kinds of random keys


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


def check_key(path: Path, here: str) -> None:
    """Refuses a checkpoint whose key is of another kind of JAX's than that `here`."""
    # Orbax writes the kind beside the arrays. Where that is damaged, what it reads of
    # them tells.
    file = path / "state" / "array_metadatas" / "process_0"
    text = file.read_text(errors="replace") if file.is_file() else ""
    saved = next(
        (kind for kind in KEYS if f'"random_key_impl": "{kind}"' in text), here
    )
    if saved != here:
        raise CheckpointError(
            f"{path} was saved with JAX_DEFAULT_PRNG_IMPL={saved}, and here it is "
            f"{here}; nothing was changed: set it to {saved} and try again"
        )


def put_aside(path: Path) -> str:
    """Renames a damaged checkpoint to a name that is none, which comes back."""
    names = (f"{path.name}.damaged{copy or ''}" for copy in itertools.count())
    free = (path.with_name(name) for name in names if not path.with_name(name).exists())
    return str(path.rename(next(free)))
