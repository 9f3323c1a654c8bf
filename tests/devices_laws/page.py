"""The verdicts as a page of Markdown, and what a page says of a method."""

import inspect
from collections.abc import Mapping
from pathlib import Path

from devices_laws.items import CLIENTS, ROUNDS, Item
from devices_laws.judging import FAMILIES, Verdict
from devices_laws.laws import LAWS

PAGE = Path(__file__).parents[2] / "docs" / "devices_laws.md"
HELD = "+"
BROKEN = "BROKEN"
Verdicts = Mapping[str, Mapping[Item, Verdict]]  # by method

HEADER = """# Selections, channels and clocks with every family of methods

`make devices` makes this page; `tests/test_devices_laws.py` holds it to be true.
{clients} clients of 3 to 20 rows play {rounds} rounds of a method of each family, of
several where their uploads differ in kind. A program has one selection, one clock and at
most one channel of each stage, so that each of them stands in one at least. `+` says that
these laws hold:

{laws}

A letter says that it is refused in one line, before anything is compiled: why is below.

"""


def written(verdicts: Verdicts) -> str:
    """The page."""
    reasons: dict[str, str] = {}
    rows = []
    kinds = {}
    for method, by_item in verdicts.items():
        for item, verdict in by_item.items():
            cell = _cell(verdict, reasons)
            kinds.setdefault(item, {})[method] = cell
    for item, cells in kinds.items():
        rows.append(_row(f"`{item.text}`", *cells.values()))
    refusals = [
        sum(bool(verdict.refused) for verdict in each.values())
        for each in verdicts.values()
    ]
    header = HEADER.format(clients=CLIENTS, rounds=ROUNDS, laws=_laws())
    lines = [
        _row("", *verdicts),
        _row("---", *("---" for _ in verdicts)),
        *rows,
        _row("refused", *map(str, refusals)),
        "",
        *(f"- {letter}: {reason}" for reason, letter in reasons.items()),
    ]
    return header + "\n".join(lines)


def cells_of(method: str, page: str) -> dict[str, bool]:
    """Whether the method takes each item, by its text, as the page has it."""
    rows = [line.strip("|").split("|") for line in page.splitlines() if line[:1] == "|"]
    header, _, *rows = [[cell.strip() for cell in row] for row in rows]
    column = header.index(method)
    return {row[0].strip("`"): row[column] == HELD for row in rows[:-1]}


def _cell(verdict: Verdict, reasons: dict[str, str]) -> str:
    if verdict.broken:
        return BROKEN
    if not verdict.refused:
        return HELD
    return reasons.setdefault(verdict.refused, _letter(len(reasons)))


def _letter(number: int) -> str:
    """a, b, .. z, aa, ab, .."""
    before = _letter(number // 26 - 1) if number >= 26 else ""
    return before + chr(ord("a") + number % 26)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _laws() -> str:
    docstrings = [inspect.getdoc(law) for law in LAWS]
    return "\n".join(f"- {docstring}" for docstring in docstrings)
