"""A comparison table as CSV (raw values) and Markdown; `latex.py` has LaTeX."""

import csv
import io
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax.evaluation.significance import LEVEL
from pfljax.report import pairing
from pfljax.report.columns import Column, Row, Table
from pfljax.report.statistics import over_seeds

BEST = "best"
ALIKE = "alike"  # what cannot be told from the best
SECOND = "second"
PLAIN = ""
NOT_REACHED = "not reached"  # in the place of a number that is infinite
MARKUP = "\\|*`<"  # letters that Markdown does not take as they are


class Cell(NamedTuple):
    """A text, and whether it is the best or second of its column."""

    text: str
    mark: str = PLAIN
    note: str = ""  # small, below the text


def headings(table: Table) -> list[str]:
    """Titles of all columns, as shown."""
    titles = [column.title for column in table.columns]
    return [*table.names, *titles, "n", "Round"]


def cells(table: Table) -> list[list[Cell]]:
    """The table as shown, best and second of each ranked column marked.

    In columns that are tested, what cannot be told from the best is marked with it.
    """
    columns = [_column_cells(table, column) for column in table.columns]
    lines = []
    for i, row in enumerate(table.rows):
        # Seeds may have chosen different rounds on validation data.
        rounds = sorted(set(row.rounds))
        line = [
            Cell(row.method),
            Cell(row.judged),
            *(column[i] for column in columns),
            Cell(str(_counted(table, row))),
            Cell(", ".join(map(str, rounds))),
        ]
        lines.append(line)
    return lines


def _counted(table: Table, row: Row) -> int:
    """Seeds that have the table's first number; all, where none has it.

    Of some seeds no client may be of the table's group, such as those never chosen.
    """
    first = row.values[table.columns[0].key]
    return int((~np.isnan(first)).sum()) or len(row.seeds)


def markdown(table: Table) -> str:
    """A GitHub-style table, best of each column in bold, and what is alike."""
    header = [markdown_text(title) for title in headings(table)]
    # Two columns of names, the others of numbers, which are set right.
    numbers = len(header) - 2
    ruler = ["---", "---", *["---:"] * numbers]
    lines = [header, ruler]
    for row in cells(table):
        lines.append([_markdown_cell(cell) for cell in row])
    text = ""
    for line in lines:
        fields = " | ".join(line)
        text += f"| {fields} |\n"
    return text


def _markdown_cell(cell: Cell) -> str:
    """The text of a cell, bold if none is better."""
    text = markdown_text(cell.text)
    if cell.mark in (BEST, ALIKE):
        return f"**{text}**"
    return text


def csv_means(table: Table) -> str:
    """Raw mean over seeds, std over seeds and count of each column, one row a row."""
    header = ["method", "model_judged", "n", "rounds"]
    for column in table.columns:
        header.append(f"{column.key}_mean")
        header.append(f"{column.key}_std_over_seeds")
    lines: list[list] = [header]
    for row in table.rows:
        # A comma would make a reader guess at the separator.
        rounds = " ".join(map(str, row.rounds))
        line = [row.method, row.judged, len(row.seeds), rounds]
        for column in table.columns:
            mean, std, _ = over_seeds(row.values[column.key])
            line += [mean, std]
        lines.append(line)
    return csv_text(lines)


def csv_seeds(table: Table) -> str:
    """Raw values, one line for each row and seed."""
    keys = [column.key for column in table.columns]
    header = ["method", "model_judged", "seed", "round", *keys]
    lines: list[list] = [header]
    for row in table.rows:
        for i, seed in enumerate(row.seeds):
            line = [row.method, row.judged, seed, row.rounds[i]]
            for key in keys:
                # Python's own float: its text has all digits.
                line.append(float(row.values[key][i]))
            lines.append(line)
    return csv_text(lines)


def markdown_text(text: str) -> str:
    """`text` that neither ends a cell nor starts markup."""
    on_one_line = " ".join(text.split())
    escaped = ""
    for letter in on_one_line:
        if letter in MARKUP:
            escaped += "\\"
        escaped += letter
    return escaped


def _column_cells(table: Table, column: Column) -> list[Cell]:
    """The cells of a column; ties in what is shown share a mark."""
    shown = [_shown(row, column) for row in table.rows]
    ranked = []
    for row, (value, _) in zip(table.rows, shown, strict=True):
        if row.ranked and not math.isnan(value):
            ranked.append(value)
    marks = _marks(ranked, column.better)
    if column.tested:
        marks = _tested_marks(table, column)
    column_cells = []
    for row, (value, text) in zip(table.rows, shown, strict=True):
        mark = PLAIN
        # An oracle may equal the best, and is none.
        if row.ranked:
            mark = marks.get(value, PLAIN)
        column_cells.append(Cell(text, mark))
    return column_cells


def _marks(ranked: Sequence[float], better: int) -> dict[float, str]:
    """The marks of the best and the second value."""
    # One alone is best of nothing.
    if not better or len(ranked) < 2:
        return {}
    # Ranked are numbers as they are shown: what reads alike is marked alike.
    order = sorted(set(ranked), key=lambda value: -better * value)
    return dict(zip(order, (BEST, SECOND), strict=False))


def _tested_marks(table: Table, column: Column) -> dict[float, str]:
    """The marks where what cannot be told from the best is as bold as that.

    None without a test: of one seed whose clients are not known, or of one row.
    """
    rows = []
    values = []
    for row in table.rows:
        value, _ = _shown(row, column)
        if row.ranked and not math.isnan(value):
            rows.append(row)
            values.append(value)
    p = pairing.against_best(rows, column)
    if np.isnan(p).all():
        return {}
    best, *others = sorted(set(values), key=lambda value: -column.better * value)
    marks = {best: BEST}
    for value, p_of_row in zip(values, p, strict=True):
        if p_of_row >= LEVEL:
            marks.setdefault(value, ALIKE)
    rest = [value for value in others if value not in marks]
    if rest:
        marks[rest[0]] = SECOND
    return marks


def _shown(row: Row, column: Column) -> tuple[float, str]:
    """(rounded mean over seeds, its text)."""
    values = row.values[column.key] * column.scale
    mean, std, count = over_seeds(values)
    if math.isnan(mean):
        return mean, "–"
    # What is spent until a target is infinite where it is not reached.
    if math.isinf(mean):
        missing = int(np.isinf(values).sum())
        of_seeds = "" if missing == count else f" by {missing} of {count} seeds"
        return float("nan"), f"{NOT_REACHED}{of_seeds}"
    if column.is_p:
        mean = max(mean, 10.0**-column.digits)
    text = f"{mean:.{column.digits}f}"
    if column.over_seeds and not math.isnan(std):
        text += f" ± {std:.{column.digits}f}"
    return round(mean, column.digits), text


def csv_text(lines: list[list]) -> str:
    """Lines of fields as CSV text, with all digits; a number not finite is left out."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for line in lines:
        writer.writerow("" if _not_finite(field) else field for field in line)
    return text.getvalue()


def _not_finite(field: Any) -> bool:
    return isinstance(field, float | np.floating) and not math.isfinite(field)
