"""What the points of a sweep spend until a target accuracy, from its tidy table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pfljax.report.columns import Row, Table
from pfljax.report.runs import number
from pfljax.report.sweep_rows import Rows, clock_of, names_of, of_clients
from pfljax.report.sweeps import point_text
from pfljax.report.targets import Course, table_of

JUDGED = ("personal", "test", "accuracy")
Points = dict[str, dict[int, list[Mapping[str, Any]]]]  # point -> seed -> its rows


def target_table(rows: Rows, targets: Sequence[float] = ()) -> Table:
    """Points by the rounds and virtual seconds that their personal models need.

    No rows where no run has two evaluations.

    Raises:
        ValueError: a target is not an accuracy.
    """
    courses = []
    lines = []
    for point, by_seed in _points(rows).items():
        of_point = [_course(evaluated) for evaluated in by_seed.values()]
        courses.append(of_point)
        line = Row(
            method=point,
            judged=JUDGED[0],
            ranked=True,
            seeds=tuple(by_seed),
            rounds=tuple(int(course.rounds[-1]) for course in of_point),
            values={},
        )
        lines.append(line)
    return table_of(lines, courses, targets)


def _points(rows: Rows) -> Points:
    """The rows of each run's evaluations, of the personal models' test accuracy."""
    names = names_of(rows)
    points: Points = {}
    for row in of_clients(rows, "all"):
        if (row["judged"], row["split"], row["metric"]) != JUDGED:
            continue
        point = point_text(row, names) or "all seeds"
        by_seed = points.setdefault(point, {})
        by_seed.setdefault(int(row.get("seed", 0)), []).append(row)
    return points


def _course(evaluated: Rows) -> Course:
    """The course of a run; the tidy table tells no bytes."""
    rounds = np.array([row["round"] for row in evaluated], int)
    means = [number(row["mean"]) for row in evaluated]
    lines = [{"round": row["round"], "clock": clock_of(row)} for row in evaluated]
    return Course(rounds, np.array(means), lines)
