"""Reads the folder of a finished run."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.runs import config, folder
from pfljax.runs.log import NEWEST
from pfljax.runtime.documents import damage_error
from pfljax.runtime.files import DAMAGE, FileError

NO_DEFAULT = object()  # None may be the value of an option


class Run(NamedTuple):
    """A finished run of R rounds and C clients, evaluated T times."""

    folder: Path
    label: str
    config: dict[str, Any]  # settings by name
    environment: dict[str, Any]
    partition: dict[str, Any]
    rounds: list[dict[str, Any]]  # [R], the lines of metrics.jsonl
    per_client: dict[str, np.ndarray]  # "personal/test/accuracy": f32[T, C], ...
    summary: dict[str, Any]

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.config["seed"]

    @property
    def seconds(self) -> float:
        """Seconds of training."""
        return number(self.environment.get("seconds"))

    @property
    def peak(self) -> tuple[float, str]:
        """The most memory in bytes, and of the "process" or the fullest "device"."""
        environment = self.environment
        return number(environment.get("peak_bytes")), environment.get("peak_of", "")


def read_run(path: str | Path) -> Run:
    """The run in the folder `path`.

    Raises:
      ValueError: no run is there, or it is unfinished.
      FileError: one of its files is damaged.
    """
    path = Path(path)
    if not (path / "config.json").is_file():
        raise ValueError(
            f"{path} is not a run folder: it has no config.json; give the --out folder "
            "of `pfljax run`"
        )
    settings = folder.read_json(path / "config.json")
    try:
        by_name = config.split_options(settings)
    except ValueError as error:
        raise FileError(f"{path / 'config.json'}: {error}") from None
    if not (path / "summary.json").is_file():
        raise ValueError(
            f"{path} is unfinished: it has no summary.json; finish it with "
            "`pfljax resume`"
        )
    summary = folder.read_json(path / "summary.json")
    return Run(
        folder=path,
        label=str(by_name.get("label") or summary.get("label") or make_label(by_name)),
        config=by_name,
        environment=folder.read_json(path / "environment.json"),
        partition=folder.read_partition(path),
        rounds=_read_lines(path / "metrics.jsonl"),
        per_client=read_arrays(path / "clients.npz"),
        summary=summary,
    )


def make_label(
    settings: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> str:
    """The label, or else the algorithm and its options that differ from `defaults`."""
    if settings.get("label"):
        return str(settings["label"])
    words = [str(settings["algorithm"])]
    for name, value in sorted((settings.get("hyper") or {}).items()):
        if (defaults or {}).get(name, NO_DEFAULT) != value:
            words.append(f"{name}={value}")
    return " ".join(words)


def find(evaluations: Iterable[dict], **wanted: Any) -> list[dict]:
    """The evaluation records whose fields equal `wanted`, such as model="server"."""
    return [r for r in evaluations if all(r.get(k) == v for k, v in wanted.items())]


def main_record(evaluations: Iterable[dict], clients: str = "all") -> dict | None:
    """The test record that a method is compared by: its personal model's, if any."""
    tests = find(evaluations, split="test", clients=clients)
    return next(iter([*find(tests, model="personal"), *tests]), None)


def personal_is_server(run: Run) -> bool:
    """Whether both models have the same accuracy for all clients and rounds."""
    personal = run.per_client.get("personal/test/accuracy")
    server = run.per_client.get("server/test/accuracy")
    if personal is None or server is None:
        return False
    return np.array_equal(personal, server, equal_nan=True)


def model_text(record: Mapping[str, Any]) -> str:
    """Which parameters a record evaluates."""
    text = record["model"]
    if record["finetune"]:
        text += f" + {record['finetune']} local steps"
    return text if record["when"] == NEWEST else f"{text}, {record['when']}"


def accuracy_curve(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """(rounds i[T], mean test accuracy over all clients f[T]) of the main model."""
    rounds = []
    means = []
    for line in run.rounds:
        record = main_record(line.get("evaluations") or ())
        if record:
            rounds.append(line["round"])
            means.append(number((record["metrics"].get("accuracy") or {}).get("mean")))
    return np.asarray(rounds, int), np.asarray(means, float)


def main_clients(run: Run, round_: int | None = None) -> np.ndarray | None:
    """Accuracy f32[C] of the main model, at the last round or another evaluated one.

    None if the run has not kept it: of a fine-tuned server there are means alone.
    """
    record = main_record(run.summary["last"]["evaluations"])
    if record is None or (record["model"] == "server" and record["finetune"]):
        return None
    view = record["model"]
    if view == "personal" and record["when"] != NEWEST:
        view = "trained"
    return clients_at(run, view, round_)


def clients_at(run: Run, view: str, round_: int | None = None) -> np.ndarray | None:
    """Test accuracy f32[C] of "personal", "server" or "trained" models at a round."""
    accuracy = run.per_client.get(f"{view}/test/accuracy")
    if accuracy is None:
        return None
    round_ = run.summary["last"]["round"] if round_ is None else round_
    places = np.flatnonzero(run.per_client["round"] == round_)
    return accuracy[places[0]] if len(places) else None


def is_tuned_fedavg(settings: Mapping[str, Any]) -> bool:
    """Whether the method is FedAvg, fine-tuned on each client."""
    hyper = settings.get("hyper") or {}
    return settings["algorithm"] == "fedavg" and bool(hyper.get("finetune"))


def is_local(settings: Mapping[str, Any]) -> bool:
    """Whether the method is local training."""
    return settings["algorithm"] == "local"


def number(value: Any) -> float:
    """`value` as a float; NaN for None, which JSON has for it."""
    return float("nan") if value is None else float(value)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file."""
    try:
        arrays = folder.read_arrays(path)
    except folder.FolderError as error:
        raise damage_error(path, error) from error
    if not arrays:
        raise damage_error(path, "it has no arrays")
    return arrays


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of `path`, one a line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]
    except DAMAGE as error:
        raise damage_error(path, error) from error
