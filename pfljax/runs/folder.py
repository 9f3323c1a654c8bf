"""The files of a run folder, written so that a kill at any moment loses nothing.

config.json       the settings; `pfljax run --config` reruns them
environment.json  versions and devices
executor.json     the width that was chosen, where none was given
partition.json    who holds how many rows of what, and whether they were given in Python
partition.npz     of each row of the pool its number in the data set and official split
metrics.jsonl     a line a round, appended
timing.jsonl      seconds of training, kept apart: all else is reproduced bit for bit
per_client.npz    metrics of each client at each evaluation
summary.json      the last round, the round chosen on validation, traffic
checkpoints/      the newest states
clients/          client states in a store (pfljax.engine.paging)
landscape/        what `pfljax landscape` wrote
round-R/          what told of the end at round R, before the run went on beyond it
figures/, report.html
"""

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from pfljax.runs import checks, config
from pfljax.runs.settings import Experiment

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
MARKS = {"run": "config.json", "sweep": "sweep.json"}  # who has a folder


class FolderError(RuntimeError):
    """The run folder cannot be used; the message says why and what to do."""


def finished(folder: Path) -> bool:
    """Whether the run in `folder` is complete, report and all."""
    return (folder / "summary.json").exists() and drawn(folder)


def drawn(folder: Path) -> bool:
    """Whether the report and its figures are there."""
    return (folder / "report.html").exists() and (folder / "figures").is_dir()


@contextmanager
def locked(folder: Path, kind: str = "run") -> Iterator[None]:
    """Makes `folder` if need be and holds it: one process at a time runs in it.

    `kind` is "run" or "sweep".
    """
    lock = filelock.FileLock(folder / ".lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Before the lock: its file would be the first of ours in a stranger's folder.
        _refuse_strangers(folder, kind)
        lock.acquire(blocking=False)
    except filelock.Timeout:
        raise FolderError(f"another process is running in {folder}") from None
    except OSError as error:
        raise FolderError(
            f"cannot write to {folder} ({error.strerror}); choose another --out"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _refuse_strangers(folder: Path, kind: str) -> None:
    names = sorted(path.name for path in folder.iterdir())
    # A kill may have left a lock and files half written, but no mark yet.
    strangers = [n for n in names if n != ".lock" and not n.endswith(".part")]
    if strangers and MARKS[kind] not in names:
        raise FolderError(
            f"{folder} is not empty and not a {kind} ({strangers[0]}); "
            "choose another --out"
        )


def complete(folder: Path, rounds: int) -> bool:
    """Whether the run in `folder` has come to the end of this many rounds."""
    summary = folder / "summary.json"
    return summary.exists() and read_json(summary)["rounds"] == rounds


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FolderError(f"{path} cannot be read: {error}") from None


def number(value: Any) -> float | None:
    """A float that JSON can hold: None for NaN and infinities."""
    return float(value) if np.isfinite(value) else None


def read_config(folder: Path) -> Experiment:
    """The experiment of a run folder."""
    path = folder / "config.json"
    if not path.exists():
        raise FolderError(f"{folder} is not a run folder: it has no config.json")
    try:
        experiment = config.from_dict(read_json(path))
        checks.check_values(experiment)
    except ValueError as error:
        raise FolderError(f"{path} is not the config of a run: {error}") from None
    return experiment


def write_json(path: Path, value: Any) -> None:
    """Writes the file whole or not at all."""
    # A rename within a folder is atomic: readers see the old file or the new one.
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")
    part.replace(path)


def append_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Appends one JSON object a line, in one write."""
    text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
    with open(path, "a") as file:
        file.write(text)


def cut_lines(
    path: Path, last_round: int, evaluated: Callable[[int], bool] = lambda _: True
) -> list[dict[str, Any]]:
    """Drops lines of rounds after `last_round`, and a half-written one; the rest.

    Evaluations at rounds that are not `evaluated` are dropped from theirs.
    """
    kept = []
    text = path.read_text() if path.exists() else ""
    for line in text.splitlines():
        try:
            record = json.loads(line)
            round_ = record["round"]
            if round_ > last_round:
                continue
            if not evaluated(round_):  # it was the last of a run that now goes on
                record.pop("evaluations", None)
            kept.append(record)
        except (ValueError, KeyError, TypeError):
            break  # a line half written by a kill; nothing follows it
    part = path.with_name(path.name + ".part")
    part.write_text("".join(json.dumps(r, allow_nan=False) + "\n" for r in kept))
    part.replace(path)
    return kept


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an .npz whole or not at all."""
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    part.replace(path)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz; empty if there is none."""
    if not path.exists():
        return {}
    try:
        with np.load(path) as archive:
            return dict(archive)
    except DAMAGE as error:
        raise FolderError(f"{path} is damaged: {error}") from None
