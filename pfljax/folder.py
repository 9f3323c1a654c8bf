"""The files of a run folder, written so that a kill at any moment loses nothing.

config.json       the settings; `pfljax run --config` reruns them
environment.json  versions and devices
partition.json    who holds which rows
metrics.jsonl     a line a round, appended
timing.jsonl      seconds of training, kept apart: all else is reproduced bit for bit
per_client.npz    metrics of each client at each evaluation
summary.json      the last round, the round chosen on validation, traffic
checkpoints/      the newest states
figures/, report.html
"""

import fcntl
import importlib.metadata
import json
import os
import platform
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pfljax import config
from pfljax.config import Experiment

PACKAGES = ("pfljax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


class FolderError(RuntimeError):
    """The run folder cannot be used; the message says why and what to do."""


def finished(folder: Path) -> bool:
    """Whether the run in `folder` is complete, report and all."""
    return (folder / "summary.json").exists() and (folder / "report.html").exists()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes `folder` if need be and holds it: one process at a time runs in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_strangers(folder)
        lock = open(folder / ".lock", "w")  # noqa: SIM115, closed by `with` below
    except OSError as error:
        raise FolderError(
            f"cannot write to {folder} ({error.strerror}); choose another --out"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FolderError(f"another process is running in {folder}") from None
        yield


def _refuse_strangers(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir())
    strangers = [n for n in names if n != ".lock" and not n.endswith(".part")]
    if strangers and "config.json" not in names:
        raise FolderError(
            f"{folder} is not empty and not a run ({strangers[0]}); "
            "choose another --out"
        )


def claim(folder: Path, experiment: Experiment) -> None:
    """Refuses a folder that holds a run with another config."""
    if not (folder / "config.json").exists():
        return
    changes = config.difference(read_config(folder), experiment)
    if changes:
        raise FolderError(
            f"{folder} holds a run with another config ({'; '.join(changes)}); "
            "choose another --out"
        )


def begin(path: Path, experiment: Experiment, manifest: Mapping[str, Any]) -> None:
    """Writes what describes the run, if it is not there; refuses other data."""
    check_data(path, manifest)
    described = {
        "config.json": config.to_dict(experiment),
        "environment.json": environment(),
        "partition.json": manifest,
    }
    for name, value in described.items():
        if not (path / name).exists():
            write_json(path / name, value)


def check_data(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuses data other than those of partition.json, if that is there."""
    file = path / "partition.json"
    if file.exists() and not same_clients(read_json(file), manifest):
        raise FolderError(
            f"{path} was begun on other data than these; choose another --out, or give "
            "the federation that it was begun with"
        )


def same_clients(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two manifests tell of the same clients with the same rows."""
    return all(a.get(key) == b.get(key) for key in ("sha256", "clients"))


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
        config.check(experiment)
    except ValueError as error:
        raise FolderError(f"{path} is not the config of a run: {error}") from None
    return experiment


def environment() -> dict[str, Any]:
    """Versions, devices and processor, for environment.json."""
    return {
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "devices": [f"{d.platform}: {d.device_kind}" for d in jax.devices()],
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def write_json(path: Path, value: Any) -> None:
    """Writes the file whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")
    part.replace(path)


def append_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Appends one JSON object a line, in one write."""
    text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
    with open(path, "a") as file:
        file.write(text)


def cut_lines(path: Path, last_round: int) -> list[dict[str, Any]]:
    """Drops lines of rounds after `last_round`, and a half-written one; the rest."""
    kept = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
            if record["round"] <= last_round:
                kept.append(record)
        except (ValueError, KeyError, TypeError):
            break
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
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise FolderError(f"{path} is damaged: {error}") from None
