"""The rows of a sweep's tidy table, sweep.csv: one a run, round, model and metric."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pfljax.runtime.documents import damaged
from pfljax.runtime.files import DAMAGE

Rows = Sequence[Mapping[str, Any]]
FIRST_OF_JUDGED = "round"  # the columns before it are what was swept
LAST_OF_JUDGED = "metric"  # those after it are figures over clients


def read(folder: str | Path) -> list[dict[str, Any]]:
    """The rows of a sweep's sweep.csv: of all runs that are finished.

    Numbers are floats, NaN where empty.

    Raises:
      ValueError: no run is finished there, or the table is damaged.
    """
    path = Path(folder) / "sweep.csv"
    if not path.exists():
        raise ValueError(
            f"{folder} has no sweep.csv: no run is finished; its command goes on"
        )
    try:
        return _parsed(path.read_text("utf-8"))
    except (*DAMAGE, IndexError) as error:
        raise damaged(path, error) from error


def _parsed(text: str) -> list[dict[str, Any]]:
    """The rows of whole runs in the text of a table."""
    whole = text[: text.rfind("\n") + 1]
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(whole)))
    # A run is added in one write: a cut line says that its rows are not all there.
    if whole != text:
        rows = _without_the_last_run(rows)
    columns = list(rows[0])
    figures = columns[columns.index(LAST_OF_JUDGED) + 1 :]
    for row in rows:
        row["round"] = int(row["round"])
        row["clock"] = clock_of(row)
        for name in figures:
            row[name] = float(row[name] or "nan")
    return rows


def _without_the_last_run(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows before those of the run that the last row is of."""
    names = _swept(rows)
    last = _run_of(rows[-1], names)
    return [row for row in rows if _run_of(row, names) != last]


def progress(rows: Rows, over: Mapping[str, Sequence[Any]]) -> str:
    """How many of the runs `over` names are in the table, where it is not all."""
    # As texts: a value of sweep.json is a number, that of sweep.csv is not.
    wanted = []
    for values in over.values():
        wanted.append({value_text(value) for value in values})
    runs = {tuple(value_text(row[name]) for name in over) for row in rows}
    done = 0
    for run in runs:
        # Runs of earlier calls, with other values, are in the table as well.
        matches = [text in values for text, values in zip(run, wanted, strict=True)]
        done += all(matches)
    asked = math.prod(len(values) for values in over.values())
    if done >= asked:
        return ""
    return f"{done} of {asked} runs are finished; the sweep's command runs the rest."


def names_of(rows: Rows) -> list[str]:
    """What was swept, beside the seed."""
    return [name for name in _swept(rows) if name != "seed"]


def final(rows: Rows) -> list[Mapping[str, Any]]:
    """The rows of each run's last round."""
    names = _swept(rows)
    # Run by run: where rounds are swept, each run has a last one of its own.
    last_of: dict[tuple, int] = {}
    for row in rows:
        run = _run_of(row, names)
        last_of[run] = max(row["round"], last_of.get(run, 0))
    last_rows = []
    for row in rows:
        run = _run_of(row, names)
        if row["round"] == last_of[run]:
            last_rows.append(row)
    return last_rows


def of_clients(rows: Rows, clients: str) -> list[Mapping[str, Any]]:
    """The rows of "all" clients, of the "benign", or of the "malicious"."""
    # Older tables are of all clients, and do not say so.
    return [row for row in rows if row.get("clients", "all") == clients]


def clock_of(row: Mapping[str, Any]) -> float:
    """Virtual seconds up to the row's evaluation; NaN without a clock."""
    clock = row.get("clock", "")
    return float("nan") if clock == "" else float(clock)


def value_text(value: Any) -> str:
    """A swept value, short where that is exact: 0.10 and 0.1 are one.

    None is an empty field of sweep.csv.
    """
    if value in (None, ""):
        return "None"
    try:
        as_number = float(value)
    except (TypeError, ValueError):
        return str(value)
    short = f"{as_number:g}"
    # True is 1 as a number, and another value as a setting.
    if isinstance(value, bool) or float(short) != as_number:
        return str(value)
    return short


def _swept(rows: Rows) -> list[str]:
    """The names of what was swept, the seed with them."""
    names = list(rows[0])
    return names[: names.index(FIRST_OF_JUDGED)]


def _run_of(row: Mapping[str, Any], names: Sequence[str]) -> tuple:
    """What tells the run of a row from others."""
    return tuple(row[name] for name in names)
