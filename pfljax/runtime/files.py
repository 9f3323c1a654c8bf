"""Files that are whole or not there, and folders that hold what they seem to hold.

    with files.whole(path) as part:
        part.write_text("...")

`part` lies beside `path` and takes its name in one step when the block ends: a reader
sees the old file or the new one, and a kill leaves the old.
"""

import errno
import os
import stat
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

PART = ".part"  # the end of the name of a file that is being written
MEND = {
    errno.ENOSPC: "make room on the disk; the same command then goes on",
    errno.EDQUOT: "your quota is full: make room; the same command then goes on",
    errno.EROFS: "the disk is read-only; choose another --out",
    errno.EACCES: "you may not write there; choose another --out",
    errno.EPERM: "you may not write there; choose another --out",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "too many files are open: raise `ulimit -n`",
}
KINDS = {
    stat.S_ISLNK: "a symbolic link",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}


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
    """A file cannot be written or is not what it should be; says what to do."""


class FolderError(FileError):
    """The run folder cannot be used; the message says why and what to do."""


class CheckpointError(RuntimeError):
    """No checkpoint can be used; the message says why and what to do."""


class StoreError(FileError):
    """The client states of a run cannot be used; the message says why."""


@contextmanager
def whole(path: Path, lasting: bool = False) -> Iterator[Path]:
    """Gives the path to write to; it becomes `path` at the end of the block.

    `lasting`: a power failure, too, leaves the old file or the new one.

    Raises:
      FileError: the system refuses, such as for want of room; `path` is as it was.
    """
    part = path.with_name(path.name + PART)
    with told(path):
        try:
            yield part
            # The bytes, then the name, then the folder that holds the name.
            if lasting:
                sync(part)
            part.replace(path)
            if lasting:
                sync(path.parent)
        except BaseException:
            # A part of an earlier kill, or of this error, is nobody's.
            if not part.is_dir():
                part.unlink(missing_ok=True)
            raise


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turns what the system refuses within the block into one line about `path`."""
    try:
        yield
    except OSError as error:
        raise FileError(refusal(path, error)) from error


def refusal(path: Path, error: OSError) -> str:
    """One line: the file, what the system says, and what to do."""
    mend = MEND.get(error.errno or 0, "choose another --out")
    return f"cannot write to {path} ({error.strerror or error}); {mend}"


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, have reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str, lasting: bool = False) -> None:
    """Writes `text` as UTF-8, whole or not at all; `lasting` as in `whole`."""
    with whole(path, lasting) as part:
        # Bytes: line ends stay as they are on every system.
        part.write_bytes(text.encode("utf-8"))


def make_folder(folder: Path) -> Path:
    """`folder`, which is there from now on."""
    with told(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def odd_entry(folder: Path, foreign: Collection[str] = ()) -> str | None:
    """What in or below `folder` is no file and no folder: one line; None if nothing is.

    A program that follows a link writes over what lies elsewhere, and waits for ever
    for a pipe. What lies in `foreign` folders, other programs read and write.
    """
    for parent, folders, names in os.walk(folder):
        for name in sorted([*folders, *names]):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            for is_kind, kind in KINDS.items():
                if is_kind(mode):
                    return f"{path} is {kind}, not a file of this folder; remove it"
        if Path(parent) == folder:
            folders[:] = [name for name in folders if name not in foreign]
    return None
