"""The files of a run folder, which survive a kill at any moment.

config.json       the settings; `pfljax run RUN/config.json` reruns them
environment.json  versions, devices, the width, and at the end seconds and memory,
                  which may differ on another machine
partition.npz     which client holds which examples (pfljax.runs.partition)
metrics.jsonl     one line for each round
clients.npz       metrics of each client at each evaluation, written at the end
summary.json      the last round, the round chosen on validation, traffic
report.html       the page
checkpoints/      the newest states
initial.npz       the model of another run from which it starts (`--initial`)
clients/          client states in a store (pfljax.engine.paging)
landscape/        what `pfljax landscape` wrote
metrics.csv, tensorboard/, wandb/   the log in other formats (`--log`)

Hidden files are the lock, and evaluations that are not in clients.npz yet.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from pfljax.runs import checks, config, early_stopping
from pfljax.runs.settings import Experiment
from pfljax.runtime import documents, files
from pfljax.runtime.csv_text import format_csv
from pfljax.runtime.files import BusyError, FolderError

LOCK = ".lock"
EVALUATIONS = ".evaluations"
INITIAL = "initial.npz"
MARKS = {"run": "config.json", "sweep": "sweep.json"}  # in every such folder
OWN_FILES = (  # of a run or sweep; other results do not overwrite them
    *MARKS.values(),
    "environment.json",
    "partition.npz",
    "metrics.jsonl",
    "clients.npz",
    "summary.json",
    "report.html",
    INITIAL,
)


def is_finished(folder: Path) -> bool:
    """Whether the run in `folder` is complete, with its page."""
    return (folder / "summary.json").exists() and (folder / "report.html").exists()


@contextmanager
def lock(folder: Path, kind: str = "run") -> Iterator[None]:
    """Makes the folder and locks it, so that only one process runs in it.

    `kind` is "run" or "sweep". If an error occurs before anything is written, a new
    folder is removed again.
    """
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = filelock.FileLock(folder / LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Before the lock, whose file would stay in a folder that is no run.
        _check_kind(folder, kind)
        # A sweep is locked only while sweep.json is written.
        lock.acquire(timeout=0 if kind == "run" else 60)
        yield
    except filelock.Timeout:
        raise BusyError(f"another process is running in {folder}") from None
    except BaseException:
        _remove_empty(folder, lock, new_folders)
        raise
    finally:
        lock.release()


def _remove_empty(
    folder: Path, lock: filelock.BaseFileLock, new_folders: Sequence[Path]
) -> None:
    """Removes the lock if it is the only file, and new folders that are empty."""
    if lock.is_locked and [path.name for path in folder.iterdir()] == [LOCK]:
        (folder / LOCK).unlink()
    for path in new_folders:
        with contextlib.suppress(OSError):  # a folder that is not empty
            path.rmdir()


def _check_kind(folder: Path, kind: str) -> None:
    """Refuses a folder with other files than those of a run or sweep."""
    names = sorted(path.name for path in folder.iterdir())
    # A killed process may have left a lock and incomplete files.
    others = [n for n in names if n != LOCK and not n.endswith(files.PART)]
    if others and MARKS[kind] not in names:
        raise FolderError(
            f"{folder} is not empty and not a {kind} ({others[0]}); "
            "choose another --out"
        )


def check_not_own(file: Path) -> None:
    """Refuses to overwrite a file of a run or sweep."""
    if file.name in OWN_FILES and (file.parent / LOCK).exists():
        raise FolderError(f"{file} is a file of the run itself; choose another --out")


def complete(folder: Path, experiment: Experiment) -> bool:
    """Whether the run in `folder` is complete under these settings."""
    if not (folder / "summary.json").exists():
        return False
    summary = documents.read(folder / "summary.json")
    if summary.get("stopped") is not None:
        return early_stopping.holds(summary["stopped"], experiment)
    return summary["rounds"] == experiment.rounds


def has_saved_state(folder: Path) -> bool:
    """Whether the run in `folder` has saved a state."""
    return (folder / "checkpoints").exists() or (folder / "summary.json").exists()


def number(value: Any) -> float | None:
    """The value as a float for JSON; None for NaN and infinities."""
    return float(value) if np.isfinite(value) else None


def read_config(folder: Path) -> Experiment:
    """Reads the settings of the run in a folder."""
    path = folder / "config.json"
    if not path.exists():
        reason = "it has no config.json" if folder.exists() else "it does not exist"
        what = "give the folder of `pfljax run`"
        # Of a sweep or a comparison.
        if runs := sorted(folder.glob("*/s*/config.json")):
            what = f"it has {len(runs)} runs; name one, such as {runs[0].parent}"
        raise FolderError(f"{folder} is not a run folder: {reason}; {what}")
    try:
        experiment = config.from_dict(read_json(path))
        checks.check_values(experiment)
    except ValueError as error:
        raise FolderError(f"{path}: {error}") from None
    return experiment


read_json = documents.read
write_json = documents.write


def write_partition(
    folder: Path, manifest: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes partition.npz; see `pfljax.runs.partition`."""
    text = np.array(json.dumps(manifest))
    write_arrays(folder / "partition.npz", {"manifest": text, **arrays})


def read_partition(folder: Path) -> dict[str, Any]:
    """Reads the manifest in partition.npz; empty without that file."""
    arrays = read_arrays(folder / "partition.npz", ["manifest"])
    return json.loads(str(arrays["manifest"])) if arrays else {}


def write_evaluation(
    folder: Path, round_: int, by_client: Mapping[str, np.ndarray]
) -> None:
    """Writes the metrics [C] after this round, by name.

    clients.npz gets them at the end of the run, since rewriting it at each evaluation
    would take time quadratic in their number.
    """
    files.make_folder(folder / EVALUATIONS)
    write_arrays(folder / EVALUATIONS / f"{round_}.npz", by_client)


def read_evaluation(folder: Path, round_: int) -> dict[str, np.ndarray]:
    """Reads the metrics [C] after this round, by name; empty without that file."""
    return read_arrays(folder / EVALUATIONS / f"{round_}.npz")


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes an .npz file atomically; a list of arrays is stacked."""
    columns: Any = {name: np.asarray(value) for name, value in arrays.items()}
    with files.whole(path) as part, open(part, "wb") as file:
        np.savez(file, **columns)


def read_arrays(
    path: Path, names: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """Reads an .npz file, or its arrays `names`; empty without the file."""
    if not path.exists():
        return {}
    try:
        with np.load(path) as archive:
            return {name: archive[name] for name in names or archive.files}
    except (*files.DAMAGE, AttributeError, TypeError) as error:
        raise FolderError(
            f"{path} is damaged ({error}); restore it, or run again with another --out"
        ) from None


def write_lines(path: Path, names: Sequence[str], lines: Iterable[Sequence]) -> None:
    """Writes a .csv file with these columns and lines, atomically."""
    files.write_text(path, format_csv([names, *lines]))
