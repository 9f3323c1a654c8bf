"""Run folders as records: read, checked, named, and grouped over seeds.

The files of a run folder are written by `pfljax.simulate`; nothing here changes them.
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.report.config import by_group
from pfljax.report.read_files import (
    damaged,
    read_arrays,
    read_lines,
    read_object,
    read_optional,
    read_seconds,
    read_settings,
)

NO_DEFAULT = object()
# They do not make another method.
UNIQUE_TO_A_RUN = ("seed", "out", "baseline", "devices", "homes", "keep", "store")


class Run(NamedTuple):
    """A finished run. T evaluated rounds, C clients, R rounds."""

    folder: Path
    label: str
    config: dict[str, Any]  # settings by name
    settings: dict[str, dict[str, Any]]  # the same by group
    environment: dict[str, Any]  # empty where it was not recorded
    executor: dict[str, Any]  # empty where the width was given
    partition: dict[str, Any]
    rounds: tuple[dict[str, Any], ...]  # [R], the lines of metrics.jsonl
    per_client: dict[str, np.ndarray]  # "personal/test/accuracy" f32[T, C], ...
    summary: dict[str, Any]
    seconds: float | None  # wall time of training, where it was recorded


class Group(NamedTuple):
    """Runs whose configs differ in seed and folders alone, by seed."""

    label: str
    runs: tuple[Run, ...]


def label_of(
    config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> str:
    """The config's label, else the algorithm and its hyperparameters.

    Hyperparameters equal to `defaults` (name -> value) are left out.
    """
    if config.get("label"):
        return str(config["label"])
    defaults = defaults or {}
    hyper = config.get("hyper") or {}
    words = [str(config["algorithm"])]
    for name, value in sorted(hyper.items()):
        # None may be a value, so it cannot stand for an option without a default.
        if defaults.get(name, NO_DEFAULT) != value:
            words.append(f"{name}={value}")
    return " ".join(words)


def read_run(folder: str | Path) -> Run:
    """The run in `folder`.

    Raises:
        ValueError: no run is there, it is unfinished, or one of its files is damaged.
    """
    folder = Path(folder)
    _check_finished(folder)
    written = read_object(folder / "config.json")
    config = read_settings(folder / "config.json", written)
    summary = read_object(folder / "summary.json")
    label = config.get("label") or summary.get("label") or label_of(config)
    run = Run(
        folder=folder,
        label=str(label),
        config=config,
        settings=by_group(written),
        environment=read_optional(folder / "environment.json"),
        executor=read_optional(folder / "executor.json"),
        partition=_read_partition(folder / "partition.json"),
        rounds=read_lines(folder / "metrics.jsonl"),
        per_client=read_arrays(folder / "per_client.npz"),
        summary=summary,
        seconds=read_seconds(folder / "timing.jsonl"),
    )
    _check_agreement(run)
    return run


def group_runs(runs: Iterable[Run]) -> tuple[Group, ...]:
    """The runs by config without the seed, in order of appearance, labels made unique.

    Raises:
        ValueError: two runs have the same config and seed.
    """
    by_config: dict[str, list[Run]] = {}
    for run in runs:
        by_config.setdefault(_config_key(run), []).append(run)
    for group in by_config.values():
        group.sort(key=lambda run: run.config["seed"])
        _check_seeds(group)
    firsts = [group[0] for group in by_config.values()]
    labels = _unique_labels(firsts)
    groups = []
    for label, group in zip(labels, by_config.values(), strict=True):
        groups.append(Group(label=label, runs=tuple(group)))
    return tuple(groups)


def differing_keys(runs: Sequence[Run]) -> list[str]:
    """Config keys, the seed and the folder aside, in which the runs differ."""
    names: set[str] = set()
    for run in runs:
        names.update(run.config)
    differing = []
    for name in sorted(names.difference(UNIQUE_TO_A_RUN)):
        values = {_plain(run.config.get(name)) for run in runs}
        if len(values) > 1:
            differing.append(name)
    return differing


def find_records(evaluations: Iterable[dict], **wanted: Any) -> list[dict]:
    """Evaluation records whose fields equal `wanted`, e.g. model="server"."""
    records = []
    for record in evaluations:
        matches = [record.get(name) == value for name, value in wanted.items()]
        if all(matches):
            records.append(record)
    return records


def judged_records(evaluations: Iterable[dict], clients: str = "all") -> list[dict]:
    """Test records of the model by which a method is judged.

    That is the personal one and what was fine-tuned; the server's where there is no
    personal one.
    """
    tests = find_records(evaluations, split="test", clients=clients)
    if not any(record["model"] == "personal" for record in tests):
        return tests
    judged = []
    for record in tests:
        # A server that is fine-tuned on a client's rows is a personal model too.
        if record["model"] == "personal" or record["finetune"]:
            judged.append(record)
    return judged


def personal_is_server(run: Run) -> bool:
    """Whether the personal model scored as the server's on every client and round."""
    personal = run.per_client.get("personal/test/accuracy")
    server = run.per_client.get("server/test/accuracy")
    if personal is None or server is None:
        return False
    return np.array_equal(personal, server, equal_nan=True)


def accuracy_curve(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """(rounds i[T], mean test accuracy over all clients f[T]) of the judged model."""
    rounds = []
    means = []
    for line in run.rounds:
        # Most rounds are not evaluated.
        records = judged_records(line.get("evaluations") or ())
        if records:
            accuracy = records[0]["metrics"].get("accuracy") or {}
            rounds.append(line["round"])
            means.append(number(accuracy.get("mean")))
    return np.asarray(rounds, int), np.asarray(means, float)


def number(value: Any) -> float:
    """`value` as a float, NaN for None."""
    # JSON has no NaN: a run writes null for a number that is not finite.
    if value is None:
        return float("nan")
    return float(value)


def _check_finished(folder: Path) -> None:
    """Refuses what is not a run folder, and a run that has not finished."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give the --out folder of a run")
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{folder} is not a run folder: it has no config.json; "
            "give the --out folder of `pfljax run`"
        )
    if not (folder / "summary.json").is_file():
        log = folder / "metrics.jsonl"
        done = log.read_bytes().count(b"\n") if log.is_file() else 0
        raise ValueError(
            f"{folder} is unfinished: {done} rounds are logged and there is no "
            "summary.json; finish it with `pfljax resume`"
        )


def _read_partition(path: Path) -> dict[str, Any]:
    """The manifest, with its histogram [C][K] "class_histogram"."""
    partition = read_object(path)
    if not partition.get("class_histogram"):
        raise damaged(path, "it lacks class_histogram")
    return partition


def _check_agreement(run: Run) -> None:
    """Refuses a folder whose files tell of different runs or rounds."""
    logged = run.rounds[-1]["round"]
    summarised = run.summary["rounds"]
    if logged != summarised:
        why = f"its last round is {logged}, but summary.json tells of {summarised}"
        raise damaged(run.folder / "metrics.jsonl", why)
    T = len(run.per_client["round"])
    C = len(run.partition["class_histogram"])
    for model in ("personal", "server"):
        accuracy = run.per_client.get(f"{model}/test/accuracy")
        # Not every method has both models.
        if accuracy is None:
            continue
        if accuracy.shape != (T, C):
            why = f"{model}/test/accuracy has shape {accuracy.shape}"
            raise damaged(
                run.folder / "per_client.npz",
                f"{why}, expected {(T, C)}",
            )


def _plain(value: Any) -> str:
    """A text that is equal for equal JSON values."""
    return json.dumps(value, sort_keys=True)


def _config_key(run: Run) -> str:
    """The config without what tells one seed from another."""
    kept = dict(run.config)
    for name in UNIQUE_TO_A_RUN:
        kept.pop(name, None)
    return _plain(kept)


def _check_seeds(group: Sequence[Run]) -> None:
    """Refuses a seed that is there twice: it would count as two."""
    for a, b in itertools.pairwise(group):
        if a.config["seed"] == b.config["seed"]:
            raise ValueError(
                f"{a.folder} and {b.folder} have the same config and seed "
                f"{a.config['seed']}; give one of them"
            )


def _unique_labels(runs: Sequence[Run]) -> list[str]:
    """Labels; runs that share one are told apart by the config keys that differ."""
    labels = []
    for run in runs:
        twins = [other for other in runs if other.label == run.label]
        differing = [key for key in differing_keys(twins) if key != "label"]
        settings = [f"{key}={_short(run.config.get(key))}" for key in differing]
        if settings:
            labels.append(f"{run.label} ({', '.join(settings)})")
        else:
            labels.append(run.label)
    return labels


def _short(value: Any) -> str:
    """A config value in few characters."""
    if not isinstance(value, dict):
        return str(value)
    words = [f"{name}={option}" for name, option in sorted(value.items())]
    return " ".join(words)
