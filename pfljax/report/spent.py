"""What a run had spent at a round: megabytes, virtual seconds."""

from typing import Any

import numpy as np

from pfljax.report.runs import Run, number

AXES = {  # what curves may go over, and how the axis is called
    "round": "round",
    "bytes": "sent up and down by all clients (MB)",
    "seconds": "virtual seconds",
}


def has_clock(run: Run) -> bool:
    """Whether its rounds took virtual seconds."""
    return "clock" in run.rounds[-1]


def at(run: Run, rounds: np.ndarray, by: str) -> list[float]:
    """The round, MB or virtual seconds up to each of these rounds."""
    spent = {}
    for line in run.rounds:
        spent[line["round"]] = _of(line, by)
    return [spent.get(int(r), float("nan")) for r in rounds]


def _of(line: dict[str, Any], by: str) -> float:
    """What a line of the log says was spent so far."""
    if by == "round":
        return float(line["round"])
    if by == "seconds":
        return number(line.get("clock"))
    return (number(line.get("bytes_up")) + number(line.get("bytes_down"))) / 1e6
