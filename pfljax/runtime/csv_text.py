"""Text of .csv files, in which a cell from data or settings is never a formula."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from pfljax.runtime.terminal import printable

FORMULAS = ("=", "+", "-", "@", "\t")  # how a cell begins that a spreadsheet executes


def cell(value: Any) -> Any:
    """Returns a value as a cell holds it; an apostrophe stands before a formula."""
    if not isinstance(value, str) or _is_number(value):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(FORMULAS) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def format_csv(lines: Iterable[Sequence[Any]]) -> str:
    """Returns lines of cells as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([cell(value) for value in line] for line in lines)
    return text.getvalue()
