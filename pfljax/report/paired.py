"""Which method is better: the comparisons in pairs as a table and in words.

`paired` has all of it. `compared.py` says who is compared with whom, `paired_words.py`
how a line reads, `evaluation/significance.py` what the tests are.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pfljax.evaluation import significance
from pfljax.report.columns import Column, Row, Table
from pfljax.report.compared import Comparison, compare
from pfljax.report.paired_words import in_words, key

NAME = "paired"


def _p(key: str, title: str) -> Column:
    return Column(key, title, scale=1, digits=4, better=0, is_p=True)


# A phone shows the first two.
COLUMNS = (
    Column("difference", "Difference (points)", scale=100, digits=2, better=0),
    _p("p_holm", "p after Holm"),
    Column("low", "95 % from", scale=100, digits=2, better=0),
    Column("high", "to", scale=100, digits=2, better=0),
    _p("p", "p (t, seeds)"),
    _p("p_wilcoxon", "p (Wilcoxon)"),
    _p("p_clients", "p (clients, Holm)"),
    Column("win", "Clients win", scale=1, digits=0, better=0),
    Column("tie", "tie", scale=1, digits=0, better=0),
    Column("lose", "lose", scale=1, digits=0, better=0),
)
CAPTION = (
    "Which is better at the last round. Test accuracy of the same clients under the "
    "same seeds, in pairs, the better one first. Each 95 % interval is on its own. p "
    "after Holm's correction decides."
)
WHO = "The best, and a baseline where there is one, is held against each other method. "
INTERVAL = (
    "The interval is the bootstrap's, of seeds and of the clients within them as far "
    "as they are known, with the width of Student's t over seeds. It is of one "
    "comparison alone: it may leave out 0 where p after Holm, which is of several, is "
    "above .05. "
)
SEEDS = (
    "Would another seed say the same? That is asked of the seeds' means: by Student's "
    "t in pairs, whose p after Holm decides, and by Wilcoxon's signed ranks, which of "
    "n seeds give no p below 2/2^n ({least}). "
)
ONE_SEED = (
    "Of one seed nothing can be said of another: p after Holm is that of its clients. "
)
CLIENTS = (
    "Do these clients win? That is asked within these seeds: p (clients, Holm) is of "
    "the signed ranks of clients, in clusters by client where all seeds have the same "
    "ones, and is no answer to the first question. A client counts once a seed. "
)
NO_CLIENTS = "Clients are not known: the seeds alone are compared. "
FAMILIES = (
    "Holm's method corrects over the rows with the best, and over the other rows; of "
    "both, those of one seed alone are corrected apart. A p is shown as .0001 at least."
)


class Paired(NamedTuple):
    """The comparisons of a table."""

    table: Table
    comparisons: tuple[Comparison, ...]
    key: str  # how to read the lines
    lines: tuple[str, ...]  # each comparison in words, then what was not compared
    note: str  # which test answers what


def paired(tables: Sequence[Table]) -> Paired:
    """Each method of the tables against the best and the baselines, on the accuracy."""
    comparisons, refusals = compare([row for table in tables for row in table.rows])
    return Paired(
        table=_table(comparisons),
        comparisons=tuple(comparisons),
        key=key(comparisons),
        lines=(*map(in_words, comparisons), *refusals),
        note=_note(comparisons) if comparisons else "",
    )


def _table(comparisons: Sequence[Comparison]) -> Table:
    """The comparisons as a table, without columns that no row fills."""
    rows = tuple(map(_row, comparisons))
    columns = []
    for column in COLUMNS:
        if not all(np.isnan(row.values[column.key]).all() for row in rows):
            columns.append(column)
    return Table(
        name=NAME,
        caption=CAPTION,
        columns=tuple(columns),
        rows=rows,
        names=("Method", "Against"),
    )


def _row(comparison: Comparison) -> Row:
    """A comparison as a row, whose numbers are the same for all its seeds."""
    n = len(comparison.pair.seeds)
    values = {name: np.full(n, value) for name, value in comparison.values.items()}
    return Row(
        method=comparison.method,
        judged=comparison.against,
        ranked=True,
        seeds=comparison.pair.seeds,
        rounds=comparison.rounds,
        values=values,
    )


def _note(comparisons: Sequence[Comparison]) -> str:
    """Who is compared with whom, and which test answers what."""
    counts = sorted({len(comparison.pair.seeds) for comparison in comparisons})
    least = ", ".join(f"{significance.least_p(n):.2g} of {n}" for n in counts if n > 1)
    asked = SEEDS.format(least=least) if least else ""
    if 1 in counts:
        asked += ONE_SEED
    is_known = any(comparison.pair.clients for comparison in comparisons)
    clients = CLIENTS if is_known else NO_CLIENTS
    return WHO + INTERVAL + asked + clients + FAMILIES
