"""Files that are either complete or missing.

    with files.whole(path) as part:
        part.write_text("...")

`part` is beside `path` and is renamed to it when the block ends: a reader sees the old
file or the new one, and a kill leaves the old one.
"""

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PART = ".part"  # the end of the name of a file that is being written
DAMAGE = (  # what reading a broken .npz or JSON file raises
    ValueError,
    KeyError,
    OSError,
    EOFError,
    NotImplementedError,  # a zip header that names an unknown compression
    RuntimeError,  # a zip header that claims encryption
    zipfile.BadZipFile,
    zlib.error,
)


class FileError(RuntimeError):
    """A file is missing or invalid; the message says what to do."""


class FolderError(FileError):
    """The run folder cannot be used; the message says why and what to do."""


class BusyError(FolderError):
    """Another process is running in the folder."""


class CheckpointError(RuntimeError):
    """No checkpoint can be used; the message says why and what to do."""


class StoreError(FileError):
    """The client states of a run cannot be used; the message says why."""


@contextmanager
def whole(path: Path, lasting: bool = False) -> Iterator[Path]:
    """Gives the path to write to; it becomes `path` at the end of the block.

    `lasting`: even a power failure leaves the old file or the new one.
    """
    part = path.with_name(path.name + PART)
    try:
        yield part
        # The bytes, then the name, then the folder that holds the name.
        if lasting:
            sync(part)
        part.replace(path)
        if lasting:
            sync(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, have reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str, lasting: bool = False) -> None:
    """Writes `text` as UTF-8, complete or not at all; `lasting` as in `whole`."""
    with whole(path, lasting) as part:
        # Bytes: line ends stay as they are on every system.
        part.write_bytes(text.encode("utf-8"))


def make_folder(folder: Path) -> Path:
    """Makes the folder, and its parents, if it is not there; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder
