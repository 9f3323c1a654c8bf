"""What a run had spent at a round, or at an accuracy: megabytes, virtual seconds."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax.report.runs import Run, accuracy_curve, number

AXES = {  # what curves may go over, and how the axis is called
    "round": "round",
    "bytes": "sent up and down by all clients (MB)",
    "seconds": "virtual seconds",
}
SMOOTHED = 3  # evaluations whose mean has to reach a target
STEP = 0.05  # between the targets that are looked at unasked


class Spent(NamedTuple):
    """What it took to reach an accuracy; NaN where the run never did."""

    round: float
    megabytes: float  # up and down, of all clients
    seconds: float  # virtual; NaN without a clock


NEVER = Spent(round=float("nan"), megabytes=float("nan"), seconds=float("nan"))


def has_clock(run: Run) -> bool:
    """Whether its rounds took virtual seconds."""
    return "clock" in run.rounds[-1]


def at(run: Run, rounds: np.ndarray, by: str) -> list[float]:
    """The round, MB or virtual seconds up to each of these rounds."""
    spent = {}
    for line in run.rounds:
        spent[line["round"]] = _of(line, by)
    return [spent.get(int(r), float("nan")) for r in rounds]


def to_target(run: Run, target: float) -> Spent:
    """What it took until the mean of three evaluations in a row reached `target`.

    Of the first and the second evaluation, of as many as there are. The model is the
    one that the run is judged by.
    """
    rounds, accuracy = accuracy_curve(run)
    for index, round_ in enumerate(rounds):
        recent = accuracy[max(0, index + 1 - SMOOTHED) : index + 1]
        if np.mean(recent) >= target:
            (megabytes,) = at(run, np.array([round_]), "bytes")
            (seconds,) = at(run, np.array([round_]), "seconds")
            return Spent(float(round_), megabytes, seconds)
    return NEVER


def common_target(runs: Sequence[Run]) -> float:
    """The greatest multiple of five points that all runs reach; 0 for none."""
    reached = 0.0
    for target in np.arange(STEP, 1, STEP):
        if any(np.isnan(to_target(run, target).round) for run in runs):
            break
        reached = float(target)
    return round(reached, 2)


def _of(line: dict[str, Any], by: str) -> float:
    """What a line of the log says was spent so far."""
    if by == "round":
        return float(line["round"])
    if by == "seconds":
        return number(line.get("clock"))
    return (number(line.get("bytes_up")) + number(line.get("bytes_down"))) / 1e6
