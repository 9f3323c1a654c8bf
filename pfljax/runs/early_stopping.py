"""Runs that end before their last round, and what summary.json records of them.

{"round": 20, "by": "patience 3", "of": 100} is a run of 100 rounds that ended after 20.
The same call finds it finished. With other rounds or another patience it continues.
"""

from collections.abc import Mapping
from typing import Any

from pfljax.runs.settings import Experiment

CALLBACK = "callback"


def by_patience(experiment: Experiment) -> str:
    """The reason of a run that ends by its patience."""
    text = f"patience {experiment.patience}"
    if experiment.monitor not in ("auto", "accuracy"):
        text += f" by {experiment.monitor}"
    return text


def stop(experiment: Experiment, round_: int, by: str) -> dict[str, Any]:
    """The record of a run that ends after this round."""
    return {"round": round_, "by": by, "of": experiment.rounds}


def holds(stopped: Mapping[str, Any], experiment: Experiment) -> bool:
    """Whether this record still holds: under these settings the run ends there too."""
    reasons = (CALLBACK, by_patience(experiment))
    return stopped["of"] == experiment.rounds and stopped["by"] in reasons
