"""A comparison table in LaTeX booktabs: as a paper shows it, and whole."""

from collections.abc import Sequence

from pfljax.report.columns import Row, Table
from pfljax.report.formats import ALIKE, BEST, PLAIN, SECOND, Cell, cells, headings

LETTERS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "²": r"$^2$",
    "–": "--",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "ν": r"$\nu$",
    "·": r"$\cdot$",
}

BOLD = r"\textbf{%s}"
MARKS = {BEST: BOLD, ALIKE: BOLD, SECOND: r"\underline{%s}", PLAIN: "%s"}
# By the end of a table's name; of others the first columns.
WANTED = {
    "calibration": ("loss", "brier", "ece"),
    "fairness": ("variance", "gini", "gain_local", "worse_than_local"),
}
OF_ACCURACY = ("accuracy", "std_clients", "worst10", "mb_up")
MOST = 4  # columns of numbers


def short(table: Table) -> str:
    """`few(table)` as a booktabs tabular in a table float, as it fits a page."""
    shown = few(table)
    titles = ["Method", *(column.title for column in shown.columns)]
    fields = []
    for row in cells(shown):
        # Which model it is, seeds and rounds are in the caption and the long table.
        numbers = row[2 : 2 + len(shown.columns)]
        fields.append(_fields([row[0], *numbers]))
    return _float(shown.caption, titles, fields, names=1, scaled=False)


def long(table: Table) -> str:
    """A booktabs tabular in a table float, as wide as the page: all columns.

    The best is bold, the second underlined.
    """
    fields = [_fields(row) for row in cells(table)]
    return _float(
        table.caption,
        headings(table),
        fields,
        names=2,
        scaled=True,
    )


def few(table: Table) -> Table:
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


def _float(
    caption: str,
    titles: Sequence[str],
    fields: Sequence[Sequence[str]],
    *,
    names: int,
    scaled: bool,
) -> str:
    """A table float of cells in LaTeX; the first line says which packages it needs.

    The first `names` columns are names, set left, the others numbers. `scaled` fits a
    wide table into the page.
    """
    packages = r"\usepackage{booktabs}"
    opening = ""
    closing = ""
    if scaled:
        packages += r" \usepackage{graphicx}"
        opening = "\\resizebox{\\textwidth}{!}{%\n"
        closing = "}"
    alignment = "l" * names + "r" * (len(titles) - names)
    return "\n".join(
        [
            f"% Needs in the preamble: {packages}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escaped(caption)}}}",
            rf"{opening}\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            _line([_heading(title) for title in titles]),
            r"\midrule",
            *map(_line, fields),
            r"\bottomrule",
            rf"\end{{tabular}}{closing}",
            r"\end{table}",
            "",
        ]
    )


def _fields(row: Sequence[Cell]) -> list[str]:
    """The cells of a row in LaTeX, marked."""
    return [MARKS[cell.mark] % _escaped(cell.text) for cell in row]


def _caption(table: Table, rows: list[Row]) -> str:
    """The first sentence of the long caption, and what the numbers are."""
    title, _, _ = table.caption.partition(". ")
    counts = {len(row.seeds) for row in rows}
    seeds = f"{counts.pop()} seeds" if len(counts) == 1 else "the seeds of each"
    return (
        f"{title}. Means over {seeds}, ± sample standard deviation; of each method the "
        "model that it is judged by."
    )


def _escaped(text: str) -> str:
    """`text` with LaTeX's special characters, Greek and line breaks made harmless."""
    on_one_line = " ".join(text.split())
    # Letter by letter: replaced one after another, a backslash would meet its own.
    return "".join(LETTERS.get(letter, letter) for letter in on_one_line)


def _line(fields: Sequence[str]) -> str:
    """A line of a tabular."""
    joined = " & ".join(fields)
    return rf"{joined} \\"


def _heading(title: str) -> str:
    """A title broken over lines at its bracket, to keep columns narrow."""
    parts = title.replace(" (", "\n(").split("\n")
    stacked = r" \\ ".join(_escaped(part) for part in parts)
    if len(parts) == 1:
        return stacked
    return rf"\shortstack{{{stacked}}}"
