"""When runs reach a target accuracy: in rounds, bytes and seconds of the virtual clock.

A target is reached at the first evaluation at which the running mean of three does.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax.evaluation import fairness
from pfljax.report.columns import Column, Row, Table
from pfljax.report.groups import Group
from pfljax.report.key_figures import model_text
from pfljax.report.runs import (
    Run,
    accuracy_curve,
    judged_records,
    number,
    personal_is_server,
)
from pfljax.report.tables import means_over_seeds, problem_differences

SHARES = (0.5, 0.9)  # of the best accuracy: the targets if none are given
NAME = "target"
AREA = Column(
    "area", "Area under the curve (%)", scale=100, digits=2, better=1, tested=True
)
OF_TARGETS = (
    "To a target. Rounds and, where they are recorded, bytes up and down of all "
    "clients (MB: 1e6) and seconds of the virtual clock until the mean test accuracy "
    "over all clients reaches a target: the first evaluation at which the mean of it "
    "and the two before does{means}. A target is not reached where one seed does not "
    "reach it. "
)
OF_AREA = (
    "The area under the curve is the mean accuracy between the first and the last "
    "evaluation."
)
UNITS = {  # key -> (heading, shown = raw * scale, digits)
    "rounds": ("Rounds", 1, 1),
    "bytes": ("MB", 1e-6, 2),
    "seconds": ("Virtual seconds", 1, 1),
}


class Course(NamedTuple):
    """What one run reached, and what it had spent by then."""

    rounds: np.ndarray  # i[T], of the evaluations
    accuracy: np.ndarray  # f[T], the mean over clients
    lines: Sequence[Mapping[str, Any]]  # of these rounds: bytes and clock so far


def course_of(run: Run) -> Course:
    """The course of a run, from its log."""
    rounds, accuracy = accuracy_curve(run)
    return Course(rounds, accuracy, run.rounds)


def default_targets(courses: Sequence[Sequence[Course]]) -> tuple[float, ...]:
    """Half and nine tenths of the best accuracy of a method, in whole percent.

    That is the greatest running mean of three evaluations, as a mean over the seeds of
    the method: `courses` are by method and seed.
    """
    best = 0.0
    for of_method in courses:
        greatest = []
        for course in of_method:
            means = fairness.running_mean(course.accuracy)
            greatest.append(np.max(means[np.isfinite(means)], initial=0))
        best = max(best, float(np.mean(greatest)))
    # A little is added for products such as .9 * .8, which are .72 less a last bit.
    percents = [math.floor(100 * share * best + 1e-6) for share in SHARES]
    return tuple(percent / 100 for percent in percents if percent)


def target_table(groups: Sequence[Group], targets: Sequence[float] = ()) -> Table:
    """Methods by what they spend until they reach the targets.

    No rows where no run has two evaluations; rows of several problems are not ranked.

    Raises:
        ValueError: a target is not an accuracy.
    """
    ranked = not problem_differences([run for group in groups for run in group.runs])
    courses = []
    rows = []
    for group in groups:
        courses.append([course_of(run) for run in group.runs])
        row = Row(
            method=group.label,
            judged=_judged(group.runs[0]),
            ranked=ranked,
            seeds=tuple(run.config["seed"] for run in group.runs),
            rounds=tuple(run.summary["rounds"] for run in group.runs),
            values={},
        )
        rows.append(row)
    return table_of(rows, courses, targets)


def table_of(
    rows: Sequence[Row], courses: Sequence[Sequence[Course]], targets: Sequence[float]
) -> Table:
    """The rows with what the courses of their seeds spend until the targets.

    No rows where no run has two evaluations.

    Raises:
        ValueError: a target is not an accuracy.
    """
    fairness.check_targets(targets)
    # In order, and once each: they are the columns' keys.
    targets = sorted(set(targets or default_targets(courses)))
    rows = [
        row._replace(values=_over_seeds(by_seed, targets))
        for row, by_seed in zip(rows, courses, strict=True)
    ]
    some = any(not np.isnan(row.values["area"]).all() for row in rows)
    columns = _columns(rows, targets)
    caption = OF_AREA
    if len(columns) > 1:
        caption = OF_TARGETS.format(means=means_over_seeds(rows)) + caption
    return Table(
        name=NAME,
        caption=caption,
        columns=columns,
        rows=tuple(rows) if some else (),
    )


def spent(course: Course, target: float) -> dict[str, float]:
    """What a run has spent when its accuracy is at a target.

    "rounds", "bytes" up and down of all clients and "seconds" of the virtual clock, NaN
    where a run has none; infinite where the target is not reached, and NaN where there
    are too few evaluations to say.
    """
    rounds, accuracy, lines = course
    if len(accuracy) < fairness.WINDOW:
        return dict.fromkeys(UNITS, float("nan"))
    first = fairness.first_reaching(accuracy, target)
    # Nothing is infinite that was not recorded: NaN stays NaN.
    beyond = math.inf if first is None else 0.0
    reached = rounds[-1] if first is None else rounds[first]
    line = next(line for line in lines if line["round"] == reached)
    values = {
        "rounds": number(line["round"]),
        "bytes": number(line.get("bytes_up")) + number(line.get("bytes_down")),
        "seconds": number(line.get("clock")),
    }
    return {unit: value + beyond for unit, value in values.items()}


def _over_seeds(
    by_seed: Sequence[Course], targets: Sequence[float]
) -> dict[str, np.ndarray]:
    """The columns of a row, over its seeds."""
    values: dict[str, list[float]] = {}
    for course in by_seed:
        area = fairness.area(course.rounds, course.accuracy)
        values.setdefault(AREA.key, []).append(area)
        for target in targets:
            for unit, value in spent(course, target).items():
                values.setdefault(_key(unit, target), []).append(value)
    return {key: np.array(numbers) for key, numbers in values.items()}


def _columns(rows: Sequence[Row], targets: Sequence[float]) -> tuple[Column, ...]:
    """Those that a run has: without a virtual clock there are no seconds."""
    columns = []
    for target in targets:
        for unit, (heading, scale, digits) in UNITS.items():
            key = _key(unit, target)
            title = f"{heading} to {100 * target:g} %"
            column = Column(key, title, scale=scale, digits=digits, better=-1)
            if not all(np.isnan(row.values[key]).all() for row in rows):
                columns.append(column)
    return (*columns, AREA)


def _key(unit: str, target: float) -> str:
    return f"{unit}_to_{target:g}"


def _judged(run: Run) -> str:
    """Which model the curve is of."""
    records = judged_records(run.summary["last"]["evaluations"])
    if not records:
        return ""
    record = records[0]
    if personal_is_server(run):
        record = record | {"model": "server"}
    return f"{model_text(record)}, {record['when']}"
