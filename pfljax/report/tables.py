"""The comparison table: one row a method and judged model, numbers over seeds.

Every value is kept for each seed. Std over clients is inside one run (population std,
then averaged over seeds); std over seeds is between runs (sample std, n - 1). They are
two numbers and never mixed.
"""

from collections.abc import Sequence

import numpy as np

from pfljax.report.clients import CHOSEN, LAST
from pfljax.report.columns import (
    CALIBRATION,
    COLUMNS,
    DETECTED,
    DETECTION,
    FAIRNESS,
    Column,
    Row,
    Table,
    same_numbers,
)
from pfljax.report.groups import Group
from pfljax.report.method_rows import method_rows
from pfljax.report.runs import Run

PROBLEM = (
    "dataset", "partition", "clients", "noise", "test", "test_from", "rows", "unseen",
)  # fmt: skip
GAINS = {  # column -> what it is a gain over
    "gain_local": "local training on the same rows and seed",
    "gain_server": "the server's model before it is made personal",
}
MOMENTS = {  # of the summary -> (name of the table, what the caption says)
    LAST: ("last", "the last round"),
    CHOSEN: ("validation", "the round chosen on validation data"),
}


def comparison_table(
    groups: Sequence[Group],
    at: str = LAST,
    clients: str = "all",
    baselines: Sequence[Run] = (),
) -> Table:
    """Methods by final numbers.

    Args:
        groups: of `group_runs`.
        at: "last" round, or each run's round "chosen_on_validation".
        clients: "all", "participants", "never chosen", "unseen", "benign" or
            "malicious".
        baselines: more runs of "local" to compare with, without rows of their own.
    """
    runs = [run for group in groups for run in group.runs]
    rows = []
    for group in groups:
        rows += method_rows(group, [*runs, *baselines], at, clients)
    name, moment = MOMENTS[at]
    caption = _caption(moment, clients)
    if clients != "all":
        name += f"_{clients.replace(' ', '_')}"
    differing = problem_differences(runs)
    # Who has more rows to learn from is not better for that.
    if differing:
        rows = [row._replace(ranked=False) for row in rows]
        caption += (
            f" The runs differ in {', '.join(differing)}: their numbers are not of one "
            "problem, and none is marked as the best."
        )
    return Table(name=name, caption=caption, columns=COLUMNS, rows=tuple(rows))


def once(tables: Sequence[Table]) -> tuple[list[Table], list[Table]]:
    """(the tables that say something of their own, those that repeat another).

    The rounds chosen on validation data may be the last ones: the table of the last
    round then says so, and stands for both.
    """
    named = {table.name: table for table in tables}
    last = named.get(MOMENTS[LAST][0])
    chosen = named.get(MOMENTS[CHOSEN][0])
    if last is None or chosen is None or not _repeats(chosen, last):
        return list(tables), []
    _, moment = MOMENTS[LAST]
    both = f"{moment}, which all runs chose on validation data too"
    stated = last._replace(caption=last.caption.replace(moment, both, 1))
    others = [table for table in tables if table.name not in (last.name, chosen.name)]
    return [stated, *others], [chosen]


def _repeats(table: Table, other: Table) -> bool:
    """Whether each row stands in the other table as well."""
    others = {(row.method, row.judged): row for row in other.rows}
    for row in table.rows:
        twin = others.get((row.method, row.judged))
        if twin is None or not same_numbers(row, twin):
            return False
    return True


def problem_differences(runs: Sequence[Run]) -> list[str]:
    """The settings of the problem itself that differ between the runs."""
    differing = []
    for name in PROBLEM:
        # As texts, for a value may be a dict.
        values = {str(run.config.get(name)) for run in runs}
        if len(values) > 1:
            differing.append(name)
    return differing


def calibration_table(table: Table) -> Table:
    """The same rows by top-5 accuracy, likelihood, uncertainty and calibration error.

    Columns without a number are left out.
    """
    caption = (
        f"{table.caption.split(' Accuracy is')[0]} Means over clients, ± the sample "
        "standard deviation over seeds. ECE and MCE have 15 bins over all rows of a "
        "client; over batches they are binned batch by batch."
    )
    rows, columns = _filled(table.rows, CALIBRATION, "loss")
    if any(column.key == DETECTION for column in columns):
        caption += DETECTED
    return Table(
        name=f"{table.name}_calibration",
        caption=caption,
        columns=columns,
        rows=rows,
    )


def fairness_table(table: Table) -> Table:
    """The same rows by how the accuracy lies over clients, and by who gains.

    Columns without a number are left out.
    """
    rows, columns = _filled(table.rows, FAIRNESS, "variance")
    moment = table.caption.partition(", over ")[0].removeprefix("Test metrics at ")
    means = means_over_seeds(rows)
    caption = (
        f"Fairness over clients at {moment}. Test accuracy of all clients that have "
        f"test rows{means}. P10 to P90 are the deciles: a tenth of the clients lie "
        "below P10. IQR is the third quartile less the first, and the variance is the "
        "population's. For equal clients Gini's index is 0, and 1 are Jain's index, "
        "the entropy of their shares in all accuracy by the log of their number, and "
        "the cosine to equal accuracies."
    )
    for key, over in GAINS.items():
        if any(column.key == key for column in columns):
            caption += f" The gain over {over} is a mean over clients."
    return Table(
        name=f"{table.name}_fairness",
        caption=caption,
        columns=columns,
        rows=rows,
    )


def means_over_seeds(rows: Sequence[Row]) -> str:
    """What a caption says of numbers that are means; nothing where all are of one."""
    return "; means over seeds" if any(len(row.seeds) > 1 for row in rows) else ""


def _filled(
    rows: Sequence[Row], columns: Sequence[Column], key: str
) -> tuple[tuple[Row, ...], tuple[Column, ...]]:
    """The rows that have a number under `key`, and the columns that one of them has."""
    rows = [row for row in rows if not np.isnan(row.values[key]).all()]
    filled = []
    for column in columns:
        if not all(np.isnan(row.values[column.key]).all() for row in rows):
            filled.append(column)
    return tuple(rows), tuple(filled)


def _caption(moment: str, clients: str) -> str:
    """What the numbers are, in one paragraph."""
    who = "all clients" if clients == "all" else f"clients: {clients}"
    return (
        f"Test metrics at {moment}, over {who}. Accuracy is the unweighted mean over "
        "clients; ± is the sample standard deviation of that mean over n seeds. Std "
        "over clients is the population standard deviation inside one run, averaged "
        "over seeds; the other columns are means over seeds. MB (1e6 bytes) are the "
        "totals of all clients up to that round."
    )
