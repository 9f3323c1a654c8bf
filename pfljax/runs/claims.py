"""A run folder belongs to one run: described once, and held against who comes back.

Whoever goes on with other settings, other clients or another model is refused.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.runs import checks, config
from pfljax.runs.folder import (
    FolderError,
    check_unchanged,
    complete,
    read_config,
    read_json,
    read_summary,
    write_arrays,
    write_json,
)
from pfljax.runs.settings import Experiment
from pfljax.runtime import documents, environment, files

# What of partition.json tells its clients and their rows from others. No data set names
# rows of one's own, but checksums do; see runs/provenance.py.
CLIENTS = ("sha256", "clients")
CONTENT = (
    "input_shape", "shift", "scale", "x_crc32", "x_sample_crc32", "labels_crc32",
    "spans_crc32", "public_crc32", "public_sample_crc32", "public_labels_crc32",
)  # fmt: skip

CHANGED = ("rounds", "keep", "baseline", "patience", "watch", "log")  # by who goes on
DEVICES = "profile_crc32"  # of partition.json: of files of devices
CHECKSUMS = {"x_crc32": "full", "x_sample_crc32": "sampled"}  # by PFLJAX_CHECKSUM


def claim(folder: Path, experiment: Experiment) -> None:
    """Refuses a folder that holds a run with another config.

    It may have more rounds than are done, unless its method goes by how many there will
    be: a longer run is then another run.
    """
    if not (folder / "config.json").exists():
        return
    old = read_config(folder)
    rounds = experiment.rounds
    reason = ""
    if rounds != old.rounds:
        done = _logged_rounds(folder)
        if config.looks_ahead(old):
            reason = f"{old.algorithm.name} goes by how many rounds there will be; "
        elif rounds <= done:
            reason = f"{done} rounds are done: only more can be asked for; "
        else:
            old = old.replace(rounds=rounds)
    changes = config.difference(old, experiment)
    if changes:
        raise FolderError(
            f"{folder} holds a run with another config ({'; '.join(changes)}); {reason}"
            "choose another --out"
        )


def _logged_rounds(folder: Path) -> int:
    """Whole lines of the log, one a round; a half-written one has no end of line."""
    log = folder / "metrics.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def begin(path: Path, experiment: Experiment, manifest: Mapping[str, Any]) -> None:
    """Writes what the run is, if it is not there; refuses other data.

    Settings of `CHANGED` come into config.json. Its clients are left to
    `describe_clients`.
    """
    check_data(path, manifest)
    check_store(path, experiment.store)
    if (path / "config.json").exists():
        changeable: Any = {name: getattr(experiment, name) for name in CHANGED}
        set_unhashed(path, **changeable)
        _put_aside(path, experiment)
    _keep(path / "config.json", config.to_dict(experiment))
    _keep(path / "environment.json", environment.now())


def describe_clients(
    path: Path, manifest: Mapping[str, Any], rows: Mapping[str, np.ndarray]
) -> None:
    """Writes partition.json, if it is not there, and partition.npz, which is `rows`.

    Of 100,000 clients it takes as long as a round: the first may begin before.
    """
    _keep(path / "partition.json", manifest)
    if rows:
        # Always: it follows from data and settings, and the file that is there may be
        # damaged where no array of it tells.
        write_arrays(path / "partition.npz", rows)


def _keep(file: Path, value: Mapping[str, Any]) -> None:
    """Writes the file with what it has, or with this value where it is not there."""
    # What is there was read before anything trains: what the report could not be
    # written of is told then. It is written anew, for its checksum in the summary is of
    # its bytes, spaces and all.
    write_json(file, read_json(file) if file.exists() else value)


def set_unhashed(path: Path, **changes: Any) -> None:
    """Rewrites config.json where these settings, which leave the state, differ."""
    old = read_config(path)
    new = old.replace(**changes)
    if new == old:
        return
    values = config.written(new)
    # The others as they are: a later version may have more, of which no checksum knows.
    settings = read_json(path / "config.json")
    for name in changes:
        settings[name] = values[name]
    write_json(path / "config.json", settings)


def _put_aside(folder: Path, experiment: Experiment) -> None:
    """Puts what tells of the end of a run that goes on into round-R/."""
    summary = folder / "summary.json"
    if complete(folder, experiment) or not summary.exists():
        return
    written = read_summary(folder)
    if written is None:
        # A damaged one tells of no end that could be kept.
        summary.unlink()
        return
    check_unchanged(folder)
    evaluations = folder / "per_client.npz"
    if not evaluations.is_file():
        raise documents.damaged(evaluations, "it is not there")
    aside = files.make_folder(folder / f"round-{written['rounds']}")
    # Copied, for the run that goes on appends to its evaluations.
    with files.whole(aside / evaluations.name) as part:
        shutil.copyfile(evaluations, part)
    landscape = (*folder.glob("landscape/*"), *folder.glob("figures/landscape_*"))
    # The summary moves last: after a kill it is still there, and the rest follows.
    for file in (*landscape, folder / "report.html", summary):
        if file.exists():
            file.replace(aside / file.name)


def check_store(path: Path, store: str) -> None:
    """Refuses to go on with another store of client states than the run's."""
    config_file = path / "config.json"
    ours = read_config(path).store if config_file.exists() else store
    if ours != store:
        raise FolderError(
            f"{path} keeps its client states in the store {ours!r}, not {store!r}; "
            f"go on with store {ours!r}, or choose another --out"
        )


def check_python(path: Path, federation: Any = None, task: Any = None) -> None:
    """Refuses a run that was given its federation or model in Python, without them.

    And one whose model only an older pfljax makes.
    """
    check_model(path)
    missing = []
    manifest = path / "partition.json"
    if federation is None and manifest.exists() and read_json(manifest).get("given"):
        missing.append("federation")
    if task is None and (path / "config.json").exists():
        model = read_config(path).model
        if checks.names_own_model(model):
            missing.append("task")
    if missing:
        arguments = ", ".join(f"{name}=..." for name in missing)
        raise FolderError(
            f"{path} was given its own {' and '.join(missing)} in Python; give the "
            f"same there: run(experiment, {arguments}), predictions(folder, "
            f"{arguments}), or the calls of pfljax.simulate.export with {arguments}"
        )


def check_model(path: Path) -> None:
    """Refuses a run of the time when "auto" was another model for rows of one axis."""
    manifest = path / "partition.json"
    if not (path / "config.json").exists() or not manifest.exists():
        return
    described = read_json(manifest)
    # Since then the model that "auto" stands for is written there.
    is_older = "model" not in described
    has_vectors = len(described.get("input_shape", ())) == 1
    if is_older and has_vectors and read_config(path).model.name == "auto":
        raise FolderError(
            f"{path} is of an older pfljax, whose model 'auto' was logistic for such "
            "rows and now is mlp; use it with that version, or run it again with "
            "model logistic and another --out"
        )


def check_data(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuses data other than those of partition.json, if that is there."""
    file = path / "partition.json"
    if not file.exists():
        return
    begun = read_json(file)
    _check_comparable(file, begun, manifest)
    same_origin = begun.get("given", False) == manifest.get("given", False)
    if not same_origin or not same_clients(begun, manifest):
        raise FolderError(
            f"{path} was begun on other data than these; choose another --out, or give "
            "the federation that it was begun with"
        )


def check_devices(path: Path, crc: int) -> None:
    """Refuses a file of devices that is not the one that the run was begun with."""
    file = path / "partition.json"
    begun = read_json(file).get(DEVICES, crc) if file.exists() else crc
    if begun != crc:
        raise FolderError(
            f"{path} was begun with other devices than the file of its profile, or of "
            "its trace, has now; put the file back, or choose another --out"
        )


def _check_comparable(
    file: Path, begun: Mapping[str, Any], manifest: Mapping[str, Any]
) -> None:
    """Refuses checksums of one's own rows that are of other modes, so tell nothing."""
    theirs = [mode for name, mode in CHECKSUMS.items() if name in begun]
    ours = [mode for name, mode in CHECKSUMS.items() if name in manifest]
    if theirs and ours and not set(theirs) & set(ours):
        raise FolderError(
            f"{file} has the {theirs[0]} checksum of the rows, to which the {ours[0]} "
            f"one cannot be compared; set PFLJAX_CHECKSUM={theirs[0]}, or choose "
            "another --out"
        )


def same_clients(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two manifests tell of the same clients with the same rows.

    What one of them lacks, as older folders do, tells nothing.
    """
    common = [name for name in CONTENT if name in a and name in b]
    return all(a.get(name) == b.get(name) for name in (*CLIENTS, *common))
