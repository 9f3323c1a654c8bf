"""A run folder belongs to one run.

Resuming it with other settings, clients or models is refused.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pfljax.core.own import crc as own_crc
from pfljax.runs import checks, components, config
from pfljax.runs.folder import (
    FolderError,
    has_saved_state,
    read_config,
    read_json,
    read_partition,
    write_json,
)
from pfljax.runs.settings import Experiment
from pfljax.runtime import environment

# The entries of a manifest that identify its clients and their examples.
IDENTITY = (
    "sha256", "clients", "input_shape", "shift", "scale", "x_crc32", "labels_crc32",
    "spans_crc32", "public_crc32", "public_labels_crc32",
)  # fmt: skip
DEVICES = "profile_crc32"  # in the manifest: the checksum of files of devices


def claim(folder: Path, experiment: Experiment) -> None:
    """Refuses a folder that holds a run with another config.

    The number of rounds may change to any above those that are done, unless the method
    depends on it: a longer run is then another run.
    """
    if not (folder / "config.json").exists():
        return
    old = read_config(folder)
    rounds = experiment.rounds
    reason = ""
    if rounds != old.rounds:
        done = _logged_rounds(folder)
        if config.looks_ahead(old):
            reason = f"{old.algorithm.name} depends on the number of rounds; "
        elif rounds <= done:
            reason = f"{done} rounds are done, and only more can be asked for; "
        else:
            old = old.replace(rounds=rounds)
    changes = config.difference(old, experiment)
    if changes:
        raise FolderError(
            f"{folder} holds a run with another config ({'; '.join(changes)}); {reason}"
            "choose another --out"
        )


def _logged_rounds(folder: Path) -> int:
    """The complete lines of the log: one for each round."""
    log = folder / "metrics.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def begin(
    path: Path, experiment: Experiment, manifest: Mapping[str, Any], width: int | None
) -> list[str]:
    """Writes config.json and environment.json of a new run; refuses other data.

    Returns one's own files and modules that have changed since a resumed run began.
    """
    check_data(path, manifest)
    if not (path / "config.json").exists():
        write_json(path / "config.json", config.to_dict(experiment))
    file = path / "environment.json"
    functions = components.list_own(experiment).items()
    files = {name.rpartition(":")[0]: function for name, function in functions}
    own = [f"{name} {own_crc(function)}" for name, function in files.items()]
    # Another width would sum in another order: after the first checkpoint it stays.
    if not has_saved_state(path):
        facts = environment.now() | {"width": width}
        write_json(file, facts | {"own": own} if own else facts)
        return []
    return [text.split()[0] for text in own if text not in read_json(file)["own"]]


def go_on(path: Path, experiment: Experiment) -> None:
    """Writes the settings of a resumed run, and removes its results of fewer rounds.

    It keeps its label and its number of devices, of which it may have fewer now.
    """
    old = read_config(path)
    experiment = experiment.replace(label=old.label, devices=old.devices)
    write_json(path / "config.json", config.to_dict(experiment))
    for name in ("summary.json", "report.html"):
        (path / name).unlink(missing_ok=True)


def check_python(path: Path, federation: Any = None, task: Any = None) -> None:
    """Refuses to resume without a federation or model that was given in Python."""
    missing = []
    if federation is None and read_partition(path).get("given"):
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
            f"{arguments}), pfljax.landscape.write_landscape(folder, {arguments}), or "
            f"the calls of pfljax.simulate.export with {arguments}"
        )


def check_data(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuses data other than those of partition.npz, if that is there."""
    old = read_partition(path)
    same_origin = old.get("given") == manifest["given"]
    if old and not (same_origin and same_clients(old, manifest)):
        raise FolderError(
            f"{path} was started on other data; choose another --out, or give the "
            "federation that it was started with"
        )


def check_devices(path: Path, crc: int) -> None:
    """Refuses a file of devices that has changed since the run was started."""
    if read_partition(path).get(DEVICES, crc) != crc:
        raise FolderError(
            f"{path} was started with other devices than its profile or trace file has "
            "now; put the file back, or choose another --out"
        )


def same_clients(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two manifests describe the same clients with the same examples."""
    return identity(a) == identity(b)


def identity(manifest: Mapping[str, Any]) -> list[Any]:
    """The entries of a manifest that identify its clients."""
    return [manifest.get(name) for name in IDENTITY]
