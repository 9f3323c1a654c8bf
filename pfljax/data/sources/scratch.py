"""Folders to write in, which a kill leaves behind and the next program removes."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import filelock

from pfljax.runtime.files import FileError

PREFIX = ".pfljax-"  # of their names
LOCK = ".lock"  # in each of them, held by whoever writes there
# A younger one may belong to a program that is just about to take its lock.
YOUNG = 10.0  # seconds


@contextlib.contextmanager
def scratch(home: Path) -> Iterator[Path]:
    """A folder in `home` of this program's own, gone when the block ends.

    Those that a killed program left there are removed: nobody holds their locks.

    Raises:
        FileError: the system refuses to write there.
    """
    try:
        home.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(home)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
        try:
            with filelock.FileLock(folder / LOCK):
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise FileError(
            f"cannot write to {home} ({error.strerror or error}); make room there, or "
            "set PFLJAX_DATA_DIR to another folder"
        ) from error


def _remove_abandoned(home: Path) -> None:
    for folder in home.glob(f"{PREFIX}*"):
        # Another program may remove it meanwhile.
        with contextlib.suppress(filelock.Timeout, FileNotFoundError):
            age = time.time() - folder.stat().st_mtime
            if age < YOUNG:
                continue
            with filelock.FileLock(folder / LOCK, blocking=False):
                shutil.rmtree(folder, ignore_errors=True)
