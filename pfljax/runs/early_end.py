"""How a run may end before its last round, and what summary.json says of it.

{"round": 20, "by": "patience 3", "of": 100} is a run of 20 rounds that had 100 to go.
The same call finds it finished. One with other rounds or another patience goes on.
"""

from collections.abc import Mapping
from typing import Any

from pfljax.runs.settings import Experiment

CALLBACK = "callback"


def by_patience(experiment: Experiment) -> str:
    """The name of this reason."""
    judged = experiment
    by = "" if judged.monitor == "accuracy" else f" by {judged.monitor}"
    return f"patience {judged.patience}{by}"


def stop(experiment: Experiment, round_: int, by: str) -> dict[str, Any]:
    """What is kept of a run that ends after this round."""
    return {"round": round_, "by": by, "of": experiment.rounds}


def holds(stopped: Mapping[str, Any], experiment: Experiment) -> bool:
    """Whether a run that stopped so stays so under these settings."""
    reasons = (CALLBACK, by_patience(experiment))
    return stopped["of"] == experiment.rounds and stopped["by"] in reasons
