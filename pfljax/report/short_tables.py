"""Tables as a paper shows them: few columns, a row a method."""

from pfljax.report import formats
from pfljax.report.columns import Row, Table

# By the end of a table's name; of others the first columns.
WANTED = {
    "calibration": ("loss", "brier", "ece"),
    "fairness": ("variance", "gini", "gain_local", "worse_than_local"),
}
OF_ACCURACY = ("accuracy", "std_clients", "worst10", "mb_up")
MOST = 4  # columns of numbers


def short(table: Table) -> Table:
    """The columns that a paper has, and of each method the model it is judged by."""
    _, _, kind = table.name.rpartition("_")
    wanted = WANTED.get(kind, OF_ACCURACY)
    columns = [column for column in table.columns if column.key in wanted]
    rows: dict[str, Row] = {}
    for row in table.rows:
        # The model that a method is judged by comes first, then its mixtures.
        rows.setdefault(row.method, row)
    return table._replace(
        caption=_caption(table, list(rows.values())),
        columns=tuple(columns or table.columns[:MOST]),
        rows=tuple(rows.values()),
    )


def latex(table: Table) -> str:
    """`short(table)` as a booktabs tabular in a table float, as it fits a page."""
    few = short(table)
    titles = ["Method", *(column.title for column in few.columns)]
    fields = []
    for row in formats.cells(few):
        # Which model it is, seeds and rounds are in the caption and the long table.
        numbers = row[2 : 2 + len(few.columns)]
        fields.append(formats.latex_fields([row[0], *numbers]))
    return formats.float_of(few.caption, titles, fields, names=1, scaled=False)


def _caption(table: Table, rows: list[Row]) -> str:
    """The first sentence of the long caption, and what the numbers are."""
    title, _, _ = table.caption.partition(". ")
    counts = {len(row.seeds) for row in rows}
    seeds = f"{counts.pop()} seeds" if len(counts) == 1 else "the seeds of each"
    return (
        f"{title}. Means over {seeds}, ± sample standard deviation; of each method the "
        "model that it is judged by."
    )
