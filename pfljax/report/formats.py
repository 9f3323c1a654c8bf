"""A comparison table as CSV (raw values), Markdown and LaTeX booktabs."""

import csv
import io
import math
from typing import Any, NamedTuple

import numpy as np

from pfljax.report.columns import Column, Row, Table
from pfljax.report.statistics import over_seeds

BEST, SECOND, PLAIN = "best", "second", ""
LATEX = {
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
    "–": "--",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "ν": r"$\nu$",
    "·": r"$\cdot$",
}


class Cell(NamedTuple):
    """A text, and whether it is the best or second of its column."""

    text: str
    mark: str = PLAIN


def headings(table: Table) -> list[str]:
    """Titles of all columns, as shown."""
    return ["Method", "Model judged", *(c.title for c in table.columns), "n", "Round"]


def cells(table: Table) -> list[list[Cell]]:
    """The table as shown, best and second of each ranked column marked."""
    columns = [_column_cells(table, column) for column in table.columns]
    lines = []
    for i, row in enumerate(table.rows):
        rounds = ", ".join(str(r) for r in sorted(set(row.rounds)))
        names = [Cell(row.method), Cell(row.judged)]
        values = [column[i] for column in columns]
        lines.append([*names, *values, Cell(str(len(row.seeds))), Cell(rounds)])
    return lines


def markdown(table: Table) -> str:
    """A GitHub-style table, best of each column in bold."""
    header = [_markdown_escape(title) for title in headings(table)]
    ruler = ["---", "---", *(["---:"] * (len(header) - 2))]
    lines = [header, ruler]
    for row in cells(table):
        texts = [(_markdown_escape(cell.text), cell.mark) for cell in row]
        lines.append([f"**{t}**" if mark == BEST else t for t, mark in texts])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def latex(table: Table) -> str:
    """A booktabs tabular in a table float: best bold, second underlined.

    Needs \\usepackage{booktabs} and, as it is wide, \\usepackage{graphicx}.
    """
    marks = {BEST: r"\textbf{%s}", SECOND: r"\underline{%s}", PLAIN: "%s"}
    lines = [[_latex_heading(title) for title in headings(table)]]
    for row in cells(table):
        lines.append([marks[cell.mark] % latex_escape(cell.text) for cell in row])
    header, *body = [f"{' & '.join(line)} \\\\" for line in lines]
    alignment = "ll" + "r" * (len(lines[0]) - 2)
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex_escape(table.caption)}}}",
            r"\resizebox{\textwidth}{!}{%",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            header,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def csv_means(table: Table) -> str:
    """Raw mean over seeds, std over seeds and count of each column, one row a row."""
    header = ["method", "model_judged", "n", "rounds"]
    for column in table.columns:
        header += [f"{column.key}_mean", f"{column.key}_std_over_seeds"]
    lines: list[list] = [header]
    for row in table.rows:
        line = [row.method, row.judged, len(row.seeds), " ".join(map(str, row.rounds))]
        for column in table.columns:
            mean, std, _ = over_seeds(row.values[column.key])
            line += [float(mean), float(std)]
        lines.append(line)
    return csv_text(lines)


def csv_seeds(table: Table) -> str:
    """Raw values, one line for each row and seed."""
    keys = [column.key for column in table.columns]
    lines: list[list] = [["method", "model_judged", "seed", "round", *keys]]
    for row in table.rows:
        for i, (seed, at) in enumerate(zip(row.seeds, row.rounds, strict=True)):
            values = [float(row.values[c.key][i]) for c in table.columns]
            lines.append([row.method, row.judged, seed, at, *values])
    return csv_text(lines)


def latex_escape(text: str) -> str:
    """`text` with LaTeX's special characters, Greek and line breaks made harmless."""
    return "".join(LATEX.get(c, c) for c in " ".join(text.split()))


def _latex_heading(title: str) -> str:
    """A title broken over lines at its comma and bracket, to keep columns narrow."""
    parts = [latex_escape(p) for p in title.replace(" (", "\n(").split("\n")]
    stacked = r" \\ ".join(parts)
    return rf"\shortstack{{{stacked}}}" if len(parts) > 1 else stacked


def _markdown_escape(text: str) -> str:
    """`text` that neither ends a cell nor starts markup."""
    text = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\|*`<" else c for c in text)


def _column_cells(table: Table, column: Column) -> list[Cell]:
    """The cells of a column; ties in what is shown share a mark."""
    shown = [_shown(row, column) for row in table.rows]
    ranked = [
        value
        for row, (value, _) in zip(table.rows, shown, strict=True)
        if row.ranked and column.better and not math.isnan(value)
    ]
    # Ranked are numbers as they are shown: what reads alike is marked alike.
    order = sorted(set(ranked), key=lambda value: -column.better * value)
    marks: dict[float, str] = {}
    if len(ranked) > 1:  # one alone is best of nothing
        marks = dict(zip(order, (BEST, SECOND), strict=False))
    column_cells = []
    for row, (value, text) in zip(table.rows, shown, strict=True):
        mark = marks.get(value, PLAIN) if row.ranked else PLAIN
        column_cells.append(Cell(text, mark))
    return column_cells


def _shown(row: Row, column: Column) -> tuple[float, str]:
    """(rounded mean over seeds, its text)."""
    mean, std, _ = over_seeds(row.values[column.key] * column.scale)
    if math.isnan(mean):
        return mean, "–"
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
