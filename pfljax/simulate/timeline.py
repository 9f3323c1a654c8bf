"""The virtual time of a round in the log: its seconds, the clock, and who was busy."""

from typing import Any

import numpy as np

from pfljax.core.types import Metrics
from pfljax.runs.log import Line

MOST_ROUNDS = 20  # whose turns are in the log, for a figure of them
MOST_TURNS = 200  # of a round, likewise


def of_round(metrics: Metrics, index: int, round_: int, clock: float) -> dict[str, Any]:
    """What a line has of virtual time; `clock` is that of the round before."""
    seconds = float(metrics["seconds"][index])
    line: Line = {"seconds": seconds, "clock": clock + seconds}
    if round_ <= MOST_ROUNDS:
        line["turns"] = turns_of(metrics, index, clock)
    return line


def turns_of(metrics: Metrics, index: int, clock: float) -> list[list[Any]]:
    """[client, start, end, whether it reported] of each turn of the round.

    By client, so that the layout on devices does not show.
    """
    turns = []
    columns = [
        np.asarray(metrics[f"turn_{name}"][index])
        for name in ("client", "seconds", "reported")
    ]
    # Asynchronous rounds say when a turn began; others begin with their round.
    starts = metrics.get("turn_start")
    for place in np.argsort(columns[0], kind="stable"):
        client, seconds, reported = (column[place] for column in columns)
        if seconds > 0:
            start = clock if starts is None else float(starts[index][place])
            end = start + float(seconds)
            turns.append([int(client), start, end, bool(reported)])
    return turns[:MOST_TURNS]
