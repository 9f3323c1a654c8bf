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
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from pfljax.runs import checks, config
from pfljax.runs.settings import Experiment, flat
from pfljax.runtime import environment

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
    strangers = [n for n in names if n != ".lock" and not n.endswith(".part")]
    if strangers and MARKS[kind] not in names:
        raise FolderError(
            f"{folder} is not empty and not a {kind} ({strangers[0]}); "
            "choose another --out"
        )


def claim(folder: Path, experiment: Experiment) -> None:
    """Refuses a folder that holds a run with another config.

    It may have more rounds than are done, unless its method goes by how many there will
    be: a longer run is then another run.
    """
    if not (folder / "config.json").exists():
        return
    old, why = read_config(folder), ""
    if experiment.participation.rounds != old.participation.rounds:
        log = folder / "metrics.jsonl"
        done = log.read_bytes().count(b"\n") if log.exists() else 0
        if config.looks_ahead(old):
            why = f"{old.method.algorithm} goes by how many rounds there will be; "
        elif experiment.participation.rounds <= done:
            why = f"{done} rounds are done: only more can be asked for; "
        else:
            old = old.replace(rounds=experiment.participation.rounds)
    changes = config.difference(old, experiment)
    if changes:
        raise FolderError(
            f"{folder} holds a run with another config ({'; '.join(changes)}); {why}"
            "choose another --out"
        )


def complete(folder: Path, rounds: int) -> bool:
    """Whether the run in `folder` has come to the end of this many rounds."""
    summary = folder / "summary.json"
    return summary.exists() and read_json(summary)["rounds"] == rounds


def _put_aside(folder: Path, rounds: int) -> None:
    """Puts what tells of the end of a run that goes on to `rounds` into round-R/."""
    if complete(folder, rounds) or not (folder / "summary.json").exists():
        return
    aside = folder / f"round-{read_json(folder / 'summary.json')['rounds']}"
    aside.mkdir(exist_ok=True)
    shutil.copyfile(folder / "per_client.npz", aside / "per_client.npz")
    ends = (*folder.glob("landscape/*"), *folder.glob("figures/landscape_*"))
    for file in (*ends, folder / "report.html", folder / "summary.json"):  # last
        if file.exists():
            file.replace(aside / file.name)


def begin(
    path: Path,
    experiment: Experiment,
    manifest: Mapping[str, Any],
    rows: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Writes what describes the run, if it is not there; refuses other data.

    `rows` is partition.npz. Other rounds, baseline and keep come into config.json.
    """
    check_data(path, manifest)
    check_store(path, experiment.machine.store)
    if (path / "config.json").exists():
        new: Any = flat(experiment, ("rounds", "keep", "baseline"))
        set_unhashed(path, **new)
        _put_aside(path, experiment.participation.rounds)
    described = {
        "config.json": config.to_dict(experiment),
        "environment.json": environment.now(),
        "partition.json": manifest,
    }
    for name, value in described.items():
        if not (path / name).exists():
            write_json(path / name, value)
    if rows and not (path / "partition.npz").exists():
        write_arrays(path / "partition.npz", rows)


def check_store(path: Path, store: str) -> None:
    """Refuses to go on with another store of client states than the run's."""
    config_file = path / "config.json"
    ours = read_config(path).machine.store if config_file.exists() else store
    if ours != store:
        raise FolderError(
            f"{path} keeps its client states in the store {ours!r}, not {store!r}; "
            f"go on with store {ours!r}, or choose another --out"
        )


def set_unhashed(path: Path, **changes: Any) -> None:
    """Rewrites config.json where these settings, which leave the state, differ."""
    old = read_config(path)
    new = old.replace(**changes)
    if new != old:
        write_json(path / "config.json", config.to_dict(new))


def check_python(path: Path, federation: Any = None, task: Any = None) -> None:
    """Refuses a run that was given its federation or model in Python, without them."""
    file, missing = path / "partition.json", []
    if federation is None and file.exists() and read_json(file).get("given"):
        missing.append("federation")
    if task is None and (path / "config.json").exists():
        missing += ["task"] * checks.names_own_model(read_config(path).method.model)
    if missing:
        arguments = ", ".join(f"{name}=..." for name in missing)
        raise FolderError(
            f"{path} was given its own {' and '.join(missing)} in Python; give the "
            f"same there: run(experiment, {arguments}), or the calls of "
            f"pfljax.simulate.export with {arguments}"
        )


def check_data(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuses data other than those of partition.json, if that is there."""
    file = path / "partition.json"
    there = read_json(file) if file.exists() else manifest
    given = [found.get("given", False) for found in (there, manifest)]
    if given[0] != given[1] or not same_clients(there, manifest):
        raise FolderError(
            f"{path} was begun on other data than these; choose another --out, or give "
            "the federation that it was begun with"
        )


def same_clients(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two manifests tell of the same clients with the same rows."""
    rows = {"x_crc32"} & set(a) & set(b)  # told of rows that were given in Python
    return all(a.get(key) == b.get(key) for key in ("sha256", "clients", *rows))


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
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
            if record["round"] <= last_round:
                if not evaluated(record["round"]):  # it was once the last
                    record.pop("evaluations", None)
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
    except DAMAGE as error:
        raise FolderError(f"{path} is damaged: {error}") from None
