"""What it took to reach an accuracy: rounds, megabytes and virtual seconds."""

from collections.abc import Sequence

import numpy as np

from pfljax.registry import require
from pfljax.report import spent
from pfljax.report.columns import Column, Row, Table
from pfljax.report.groups import Group
from pfljax.report.html import Grid, fixed, grid
from pfljax.report.runs import Run, accuracy_curve

NAME = "target"
COLUMNS = (
    Column("round", "Rounds", scale=1, digits=0, better=-1, over_seeds=True),
    Column("megabytes", "MB, both ways", scale=1, digits=2, better=-1, over_seeds=True),
    Column("seconds", "Virtual seconds", scale=1, digits=2, better=-1, over_seeds=True),
)
SHOWN = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # on the page of one run


def target_tables(groups: Sequence[Group], target: float | None = None) -> list[Table]:
    """The table of what it took to reach `target`; none where nobody has a clock.

    Raises:
        ValueError: the target is no accuracy.
    """
    runs = [run for group in groups for run in group.runs]
    if target is not None:
        require("target", target, 0 < target <= 1, "an accuracy, 0 < target <= 1")
    # Unasked only where seconds are told: the other tables have rounds and bytes.
    elif not all(spent.has_clock(run) for run in runs):
        return []
    chosen = spent.common_target(runs) if target is None else target
    rows = [_row(group, chosen) for group in groups] if chosen else []
    if not rows:
        return []
    caption = (
        f"Until the mean test accuracy over all clients reached {100 * chosen:g} %, as "
        "a mean of three evaluations in a row; ± one sample standard deviation over "
        "seeds. A seed that never did has no number."
    )
    return [Table(NAME, caption, COLUMNS, tuple(rows))]


def _row(group: Group, target: float) -> Row:
    """What it took each seed of a method."""
    reached = [spent.to_target(run, target) for run in group.runs]
    values = {
        column.key: np.array([getattr(one, column.key) for one in reached])
        for column in COLUMNS
    }
    rounds = [0 if np.isnan(one.round) else int(one.round) for one in reached]
    return Row(
        method=group.label,
        judged=f"{100 * target:g} %",
        ranked=True,
        seeds=tuple(run.config["seed"] for run in group.runs),
        rounds=tuple(rounds),
        values=values,
    )


def target_grid(run: Run) -> Grid:
    """A row for each accuracy that the run reached; none without a clock."""
    rows = []
    best = np.max(accuracy_curve(run)[1], initial=0)
    for target in SHOWN:
        one = spent.to_target(run, target)
        if not spent.has_clock(run) or target > best or np.isnan(one.round):
            continue
        percent = f"{100 * target:g}"
        numbers = (fixed(one.megabytes, 2), fixed(one.seconds, 2))
        rows.append([percent, f"{one.round:.0f}", *numbers])
    titles = ["Accuracy (%)", *(column.title for column in COLUMNS)]
    caption = (
        "What it took to reach a mean test accuracy over all clients, as a mean of "
        "three evaluations in a row."
    )
    return grid(titles, rows, caption)
