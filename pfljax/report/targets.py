"""When runs reach a target accuracy: in rounds, bytes and seconds of the virtual clock.

A target is reached at the first evaluation at which the running mean of three does.
"""

import math
from collections.abc import Sequence

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
from pfljax.report.tables import problem_differences

SHARES = (0.5, 0.9)  # of the best accuracy: the targets if none are given
NAME = "target"
AREA = Column(
    "area", "Area under the curve (%)", scale=100, digits=2, better=1, tested=True
)
UNITS = {  # key -> (heading, shown = raw * scale, digits)
    "rounds": ("Rounds", 1, 1),
    "bytes": ("MB", 1e-6, 2),
    "seconds": ("Virtual seconds", 1, 1),
}


def default_targets(groups: Sequence[Group]) -> tuple[float, ...]:
    """Half and nine tenths of the best accuracy of a method, in whole percent.

    That is the greatest running mean of three evaluations, as a mean over seeds.
    """
    best = 0.0
    for group in groups:
        greatest = []
        for run in group.runs:
            means = fairness.running_mean(accuracy_curve(run)[1])
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
    fairness.check_targets(targets)
    # In order, and once each: they are the columns' keys.
    targets = sorted(set(targets or default_targets(groups)))
    ranked = not problem_differences([run for group in groups for run in group.runs])
    rows = []
    for group in groups:
        by_seed = [_values(run, targets) for run in group.runs]
        keys = by_seed[0]
        row = Row(
            method=group.label,
            judged=_judged(group.runs[0]),
            ranked=ranked,
            seeds=tuple(run.config["seed"] for run in group.runs),
            rounds=tuple(run.summary["rounds"] for run in group.runs),
            values={key: np.array([seed[key] for seed in by_seed]) for key in keys},
        )
        rows.append(row)
    some = any(not np.isnan(row.values["area"]).all() for row in rows)
    return Table(
        name=NAME,
        caption="To a target. Rounds, bytes up and down of all clients (MB: 1e6) and "
        "seconds of the virtual clock until the mean test accuracy over all clients "
        "reaches a target: the first evaluation at which the mean of it and the two "
        "before does; means over seeds. A target is not reached where one seed does "
        "not reach it. The area under the curve is the mean accuracy between the first "
        "and the last evaluation.",
        columns=_columns(rows, targets),
        rows=tuple(rows) if some else (),
    )


def spent(
    run: Run, rounds: np.ndarray, curve: np.ndarray, target: float
) -> dict[str, float]:
    """What a run has spent when `curve`, accuracies [T] after `rounds`, is at a target.

    "rounds", "bytes" up and down of all clients and "seconds" of the virtual clock, NaN
    where a run has none; infinite where the target is not reached, and NaN where there
    are too few evaluations to say.
    """
    if len(curve) < fairness.WINDOW:
        return dict.fromkeys(UNITS, float("nan"))
    first = fairness.first_reaching(curve, target)
    # Nothing is infinite that was not recorded: NaN stays NaN.
    beyond = math.inf if first is None else 0.0
    reached = rounds[-1] if first is None else rounds[first]
    line = next(line for line in run.rounds if line["round"] == reached)
    values = {
        "rounds": number(line["round"]),
        "bytes": number(line.get("bytes_up")) + number(line.get("bytes_down")),
        "seconds": number(line.get("clock")),
    }
    return {unit: value + beyond for unit, value in values.items()}


def _values(run: Run, targets: Sequence[float]) -> dict[str, float]:
    """The columns of one run."""
    rounds, curve = accuracy_curve(run)
    values = {AREA.key: fairness.area(rounds, curve)}
    for target in targets:
        for unit, value in spent(run, rounds, curve, target).items():
            values[_key(unit, target)] = value
    return values


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
