"""The files of a run folder, written so that a kill at any moment loses nothing.

config.json       the settings; `pfljax run --config` reruns them
environment.json  versions and devices
executor.json     the width that was chosen
partition.json    who holds how many rows of what, and whether they were given in Python
partition.npz     of each row of the pool its number in the data set and official split
metrics.jsonl     a line a round, appended
timing.jsonl      seconds of training, or of what is written meanwhile, and the most
                  memory, kept apart: all else is reproduced bit for bit
metrics.csv, tensorboard/, wandb/   the same where `log` says so (pfljax.runs.sinks)
evaluations/      metrics of each client at each evaluation, while the run goes
per_client.npz    the same in one file, at its end
summary.json      the last round, the round chosen on validation, traffic
checkpoints/      the newest states
clients/          client states in a store (pfljax.engine.stores), by architecture
landscape/        what `pfljax landscape` wrote
round-R/          what told of the end at round R, before the run went on beyond it
figures/, report.html
"""

import contextlib
import csv
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from pfljax.runs import checks, config, early_end, forms, log
from pfljax.runs.settings import Experiment
from pfljax.runtime import documents, files
from pfljax.runtime.files import FileError, FolderError

FILES = (
    ".lock",
    "config.json",
    "environment.json",
    "executor.json",
    "metrics.csv",
    "metrics.jsonl",
    "partition.json",
    "partition.npz",
    "per_client.npz",
    "report.html",
    "summary.json",
    "sweep.csv",
    "sweep.json",
    "timing.jsonl",
)
FOLDERS = (
    "checkpoints",
    "clients",
    "evaluations",
    "figures",
    "landscape",
    "runs",
    "tensorboard",
    "wandb",
)
FOREIGN = ("wandb",)  # of another program, which leaves links while it runs
MARKS = {"run": "config.json", "sweep": "sweep.json"}  # who has a folder


def finished(folder: Path) -> bool:
    """Whether the run in `folder` is complete, report and all."""
    return read_summary(folder) is not None and drawn(folder)


def drawn(folder: Path) -> bool:
    """Whether the page of the run is there; it is written whole or not at all."""
    return (folder / "report.html").is_file()


@contextmanager
def locked(folder: Path, kind: str = "run") -> Iterator[None]:
    """Makes `folder` if need be and holds it: one process at a time runs in it.

    `kind` is "run" or "sweep". An error before anything is written leaves no folder
    that was not there.
    """
    lock = filelock.FileLock(folder / ".lock")
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        _hold(folder, kind, lock)
        yield
    except BaseException:
        _leave_no_trace(folder, lock, new_folders)
        raise
    finally:
        lock.release()


def _hold(folder: Path, kind: str, lock: filelock.BaseFileLock) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Before the lock: its file would be the first of ours in a stranger's folder.
        _refuse_strangers(folder, kind)
        _refuse_odd_entries(folder)
        lock.acquire(blocking=False)
    except filelock.Timeout:
        raise FolderError(f"another process is running in {folder}") from None
    except OSError as error:
        raise FolderError(files.refusal(folder, error)) from None


def _leave_no_trace(
    folder: Path, lock: filelock.BaseFileLock, new_folders: Sequence[Path]
) -> None:
    """Removes the lock where there is nothing else, and the folders that are new."""
    # While it is held: another process may have made one of its own.
    if lock.is_locked and [path.name for path in folder.iterdir()] == [".lock"]:
        (folder / ".lock").unlink()
    for path in new_folders:
        # One that is not empty stays; the name of another was too long to be made.
        with contextlib.suppress(OSError):
            path.rmdir()


def _refuse_strangers(folder: Path, kind: str) -> None:
    names = sorted(path.name for path in folder.iterdir())
    # A kill may have left a lock and files half written, but no mark yet.
    strangers = [n for n in names if n != ".lock" and not n.endswith(".part")]
    if strangers and MARKS[kind] not in names:
        raise FolderError(
            f"{folder} is not empty and not a {kind} ({strangers[0]}); "
            "choose another --out"
        )


def _refuse_odd_entries(folder: Path) -> None:
    odd = files.odd_entry(folder, FOREIGN)
    for path in folder.iterdir():
        expected_folder = path.name in FOLDERS
        if path.is_dir() != expected_folder and _is_ours(path.name):
            kind = "folder" if path.is_dir() else "file"
            expected = "folder" if expected_folder else "file"
            odd = odd or f"{path} is a {kind}; expected a {expected}; remove it"
    if odd:
        raise FolderError(odd)


def _is_ours(name: str) -> bool:
    """Whether a file or folder of this name is one that a run writes."""
    return name in FOLDERS or name in FILES or name.endswith(files.PART)


def check_foreign(file: Path) -> None:
    """Refuses to write `file` over what a run or sweep keeps in its folder."""
    whole = file.absolute()
    for parent in whole.parents:
        is_run = any((parent / mark).exists() for mark in MARKS.values())
        # Other projects have a config.json, too, but not the lock of a run.
        is_run = is_run and (parent / ".lock").exists()
        if is_run and _is_ours(whole.relative_to(parent).parts[0]):
            raise FolderError(
                f"{file} is a file of the run itself; choose another --out"
            )


def read_summary(folder: Path) -> dict[str, Any] | None:
    """summary.json; None where there is none, or none that can be read.

    What it says follows from the last checkpoint and the log, so the end of the run
    makes it again.
    """
    try:
        return read_json(folder / "summary.json")
    except FileError:
        return None


def complete(folder: Path, experiment: Experiment) -> bool:
    """Whether the run in `folder` has come to its end, by these settings."""
    summary = read_summary(folder)
    if summary is None:
        return False
    if summary.get("stopped") is not None:
        return early_end.holds(summary["stopped"], experiment)
    return summary["rounds"] == experiment.rounds


def begun(folder: Path) -> bool:
    """Whether the run in `folder` has come to its rounds, or was there once."""
    return (folder / "checkpoints").exists() or (folder / "summary.json").exists()


def check_unchanged(folder: Path) -> None:
    """Refuses a finished run whose log is not what was written."""
    change = log.changed(folder, read_summary(folder) or {})
    if change:
        raise FolderError(
            f"{change}; it cannot be made again from what is there: put it back, or "
            "run again with another --out"
        )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, of the form that its name stands for.

    Raises:
      FileError: it cannot be read, or is not what was written.
    """
    return documents.read(path, forms.FORMS.get(path.name))


def number(value: Any) -> float | None:
    """A float that JSON can hold: None for NaN and infinities."""
    return float(value) if np.isfinite(value) else None


def read_config(folder: Path) -> Experiment:
    """The experiment of a run folder."""
    path = folder / "config.json"
    if not path.exists():
        what = "it has no config.json" if folder.exists() else "it does not exist"
        raise FolderError(
            f"{folder} is not a run folder: {what}; give the folder of `pfljax run`"
        )
    try:
        experiment = config.from_dict(read_json(path))
        checks.check_values(experiment)
    except ValueError as error:
        raise FolderError(f"{path}: {error}") from None
    return experiment


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes the object and its checksum, whole or not at all."""
    documents.write(path, value)


def write_arrays(
    path: Path, arrays: Mapping[str, np.ndarray | list[np.ndarray]]
) -> None:
    """Writes an .npz whole or not at all; of a list of arrays, alike, their stack."""
    with files.whole(path) as part, zipfile.ZipFile(part, "w") as archive:
        for name, value in arrays.items():
            alone = not isinstance(value, list)
            rows = [np.asarray(value)] if alone else value
            kinds = {(row.shape, row.dtype) for row in rows}
            if len(kinds) != 1 or rows[0].dtype.hasobject:
                raise TypeError(f"{name} is {kinds}; expected numbers or text, alike")
            ((shape, dtype),) = kinds
            shape = shape if alone else (len(rows), *shape)
            descr = np.lib.format.dtype_to_descr(dtype)
            header = {"descr": descr, "fortran_order": False, "shape": shape}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(file, header)
                for row in rows:
                    file.write(row.tobytes())


def write_lines(path: Path, names: Sequence[str], lines: Iterable[Sequence]) -> None:
    """Writes a .csv whole or not at all: the names of its columns, and its lines."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(lines)
    files.write_text(path, text.getvalue())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz; empty if there is none."""
    if not path.exists():
        return {}
    try:
        with open(path, "rb") as file:
            # What is no archive NumPy would advise to unpickle.
            if not zipfile.is_zipfile(file):
                raise zipfile.BadZipFile("it is no archive of arrays")
            file.seek(0)
            with np.load(file) as archive:
                return dict(archive)
    except files.DAMAGE as error:
        raise FolderError(
            f"{path} is damaged: {error}; put it back, or run again with another --out"
        ) from None
