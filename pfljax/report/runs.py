"""Run folders as records: read, checked and named.

The files of a run folder are written by `pfljax.simulate`; nothing here changes them.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.report.config import by_group
from pfljax.report.read_files import (
    Timing,
    read_arrays,
    read_lines,
    read_optional,
    read_settings,
    read_timing,
)
from pfljax.runs import log
from pfljax.runs.folder import read_json
from pfljax.runs.forms import SETTINGS
from pfljax.runtime.documents import damaged, misfit
from pfljax.runtime.files import FileError

NO_DEFAULT = object()


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
    timing: Timing


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
        ValueError: no run is there, or it is unfinished.
        FileError: one of its files is damaged.
    """
    folder = Path(folder)
    _check_begun(folder)
    written = read_json(folder / "config.json")
    # Before whether it is finished: no version finishes what it cannot read.
    config = read_settings(folder / "config.json", written)
    wrong = misfit(config, SETTINGS)
    if wrong:
        raise damaged(folder / "config.json", wrong)
    _check_finished(folder)
    summary = read_json(folder / "summary.json")
    label = config.get("label") or summary.get("label") or label_of(config)
    run = Run(
        folder=folder,
        label=str(label),
        config=config,
        settings=by_group(config),
        environment=read_optional(folder / "environment.json"),
        executor=read_optional(folder / "executor.json"),
        partition=_read_partition(folder / "partition.json"),
        rounds=read_lines(folder / "metrics.jsonl"),
        per_client=read_arrays(folder / "per_client.npz"),
        summary=summary,
        timing=read_timing(folder / "timing.jsonl"),
    )
    _check_agreement(run)
    return run


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


def is_baseline(algorithm: str, options: Mapping[str, Any]) -> bool:
    """Whether the method is what personalisation has to beat.

    That is local training, or FedAvg with fine-tuning.
    """
    is_tuned = algorithm == "fedavg" and bool(options.get("finetune"))
    return is_tuned or algorithm == "local"


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


def _check_begun(folder: Path) -> None:
    """Refuses what is not a run folder."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give the --out folder of a run")
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{folder} is not a run folder: it has no config.json; "
            "give the --out folder of `pfljax run`"
        )


def _check_finished(folder: Path) -> None:
    """Refuses a run that has not finished."""
    if not (folder / "summary.json").is_file():
        lines = folder / "metrics.jsonl"
        done = lines.read_bytes().count(b"\n") if lines.is_file() else 0
        raise ValueError(
            f"{folder} is unfinished: {done} rounds are logged and there is no "
            "summary.json; finish it with `pfljax resume`"
        )


def _read_partition(path: Path) -> dict[str, Any]:
    """The manifest, with its histogram [C][K] "class_histogram"."""
    partition = read_json(path)
    _check_counts(path, partition)
    # Newcomers are clients of the same kind.
    if partition.get("unseen"):
        _check_counts(path, partition["unseen"])
    return partition


def _check_counts(path: Path, clients: Mapping[str, Any]) -> None:
    """Refuses counts by client that are not of the same clients and classes."""
    num_classes = clients["num_classes"]
    histogram = clients["class_histogram"]
    widths = {len(counts) for counts in histogram}
    if widths != {num_classes}:
        why = f"class_histogram has rows of {sorted(widths)} classes"
        raise damaged(path, f"{why}, expected {num_classes}")
    for part, sizes in clients["sizes"].items():
        # A federation without validation rows has an empty list of them.
        if len(sizes) not in (0, len(histogram)):
            why = f"sizes of {part!r} has {len(sizes)} clients"
            raise damaged(path, f"{why}, expected {len(histogram)}")


def _check_agreement(run: Run) -> None:
    """Refuses a folder whose files tell of different runs or rounds."""
    change = log.changed(run.folder, run.summary)
    if change:
        raise FileError(f"{change}; put it back, or run again in a new folder")
    logged = run.rounds[-1]["round"]
    summarised = run.summary["rounds"]
    if logged != summarised:
        why = f"its last round is {logged}, but summary.json tells of {summarised}"
        raise damaged(run.folder / "metrics.jsonl", why)
    file = run.folder / "per_client.npz"
    T = len(run.per_client["round"])
    C = len(run.partition["class_histogram"])
    for model in ("personal", "server"):
        accuracy = run.per_client.get(f"{model}/test/accuracy")
        # Not every method has both models.
        if accuracy is None:
            continue
        if accuracy.shape != (T, C):
            why = f"{model}/test/accuracy has shape {accuracy.shape}"
            raise damaged(file, f"{why}, expected {(T, C)}")
        # A client without test rows has NaN.
        if np.any((accuracy < 0) | (accuracy > 1)):
            raise damaged(file, f"{model}/test/accuracy is not within 0 and 1")
