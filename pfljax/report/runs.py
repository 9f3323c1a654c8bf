"""Reads records and the metrics of clients from finished runs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pfljax.runs.log import NEWEST
from pfljax.runs.result import Result
from pfljax.runs.settings import Experiment

Record = Mapping[str, Any]  # of a model, in the evaluations of summary.json


def is_main(record: Record) -> bool:
    """True if methods are compared by this model: the one that each client uses."""
    return record["model"] == "personal" and record["when"] == NEWEST


def model_text(record: Record) -> str:
    """The name of the model in tables: which parameters, and when."""
    text = record["model"]
    if record["finetune"]:
        text += f" + {record['finetune']} local steps"
    return text if record["when"] == NEWEST else f"{text}, {record['when']}"


def client_values(
    run: Result, metric: str, view: str = "personal", round_: int | None = None
) -> np.ndarray | None:
    """A test metric f32[C] of the "personal", "server" or "trained" models.

    It is that of the last round, or of another evaluated one; None if there is none.
    """
    values = run.clients.get(f"{view}/test/{metric}")
    if values is None:
        return None
    if round_ is None:
        return values[-1]
    places = np.flatnonzero(run.clients["round"] == round_)
    return values[places[0]] if len(places) else None


def personal_is_server(run: Result, metric: str) -> bool:
    """True if both models have the same metric for all clients and rounds."""
    personal = run.clients[f"personal/test/{metric}"]
    server = run.clients.get(f"server/test/{metric}", np.empty(0))
    return np.array_equal(personal, server, equal_nan=True)


def is_local(experiment: Experiment) -> bool:
    """True if the method is local training."""
    return experiment.algorithm.name == "local"


def is_tuned_fedavg(experiment: Experiment) -> bool:
    """True if the method is FedAvg, fine-tuned by each client."""
    method = experiment.algorithm
    return method.name == "fedavg" and bool(method.options.get("finetune"))


def number(value: Any) -> float:
    """`value` as a float; NaN for None, which JSON has for it."""
    return float("nan") if value is None else float(value)
