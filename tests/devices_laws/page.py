"""Writes the verdicts as a page of Markdown, and reads them back."""

import inspect
import re
from collections.abc import Mapping
from pathlib import Path

from devices_laws.items import CLIENTS, ROUNDS, Item, every
from devices_laws.laws import LAWS
from devices_laws.verdicts import Verdict

PAGE = Path(__file__).parents[2] / "docs" / "devices_laws.md"
HELD = "+"
BROKEN = "BROKEN"
Verdicts = Mapping[str, Mapping[Item, Verdict]]  # by method

HEADER = """# Selections, channels and clocks with every family of methods

The table shows which combinations work. A `+` says that these laws hold:

{laws}

A letter says that the run is refused before anything is compiled; the messages are
below the table.

Each column is a method of one family; some families have two, since their uploads
differ in kind. Each run has {clients} clients with 3 to 20 examples, and lasts
{rounds} rounds. It combines one selection, one clock and at most one channel of each
stage, and each item occurs in at least one run. If a run breaks a law, its items are
tested alone.
`make devices` writes this page, and `tests/test_devices_laws.py` checks a part of it.

"""


def written(verdicts: Verdicts) -> str:
    """The page."""
    reasons: dict[str, str] = {}
    rows = []
    for item in every():
        cells = [_cell(of_method[item], reasons) for of_method in verdicts.values()]
        rows.append(_row(label(item), *cells))
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
        # As it is: two brackets in a row would be a link.
        *(f"- {letter}: `{reason}`" for reason, letter in reasons.items()),
    ]
    return header + "\n".join(lines)


def label(item: Item) -> str:
    """The item in the first column."""
    return f"{item.kind} `{item.text}`"


def cells_of(method: str, page: str) -> dict[str, bool]:
    """Whether the method takes each item, by its label, as the page has it."""
    rows = [line.strip("|").split("|") for line in page.splitlines() if line[:1] == "|"]
    header, _, *rows = [[cell.strip() for cell in row] for row in rows]
    column = header.index(method)
    return {row[0]: row[column] == HELD for row in rows[:-1]}


def _cell(verdict: Verdict, reasons: dict[str, str]) -> str:
    if verdict.broken:
        return BROKEN
    if not verdict.refused:
        return HELD
    # Without what to do, and which item and method it was: one letter for all of them.
    reason, _, _ = verdict.refused.partition("; choose")
    reason = re.sub(r"^(mode|channel) '.*?'", r"the \1", reason)
    reason = re.sub(r"(are no change): .*", r"\1", reason)
    reason = re.sub(r", but \w+ (makes|exchanges|has)", r", but the method \1", reason)
    return reasons.setdefault(reason, _letter(len(reasons)))


def _letter(number: int) -> str:
    """a, b, .. z, aa, ab, .."""
    before = _letter(number // 26 - 1) if number >= 26 else ""
    return before + chr(ord("a") + number % 26)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _laws() -> str:
    docstrings = [inspect.getdoc(law) for law in LAWS]
    return "\n".join(f"- {docstring}" for docstring in docstrings)
