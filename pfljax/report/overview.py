"""The answer on one screen: a row for each method, and a few sentences."""

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from pfljax.evaluation.significance import LEVEL
from pfljax.report.frames import Frame
from pfljax.report.tables import EMPTY, Table

WIDTH = 80  # columns of a terminal
MOST_ROWS = 15  # on a screen
MOST_NAMES = 4  # in a sentence
MARK = "*"
MARK_NOTE = f"{MARK} not distinguishable from the best"
NUMBERS = {  # key -> (title, scale, format)
    "accuracy": ("Test acc. %", 100, ".2f"),
    "std": ("Std", 100, ".2f"),
    "gain_local": ("Over local", 100, "+.2f"),
    "gain_tuned": ("Over tuned FedAvg", 100, "+.2f"),
    "worse_than_local": ("Worse off %", 100, ".1f"),
    "mb": ("MB", 1, ".2f"),
    "seconds": ("Seconds", 1, ".1f"),
    "clock": ("Virtual seconds", 1, ".1f"),
}


def overview(frame: Frame, comparisons: Frame) -> Frame:
    """A row for each method by the accuracy of its main model at the last round.

    `is_alike` is whether it is the best, or not distinguishable from it.
    """
    rows = frame[frame["last"] & frame.main & (frame.clients == "all")]
    rows = rows[rows.split == "test"]
    wide = rows.pivot_table("mean", ["method", "seed"], "metric", dropna=False)
    spent = rows.groupby(["method", "seed"])
    spent = spent[["bytes_up", "bytes_down", "seconds", "clock"]].first()
    by_seed = wide.join(spent).assign(mb=(spent.bytes_up + spent.bytes_down) / 1e6)
    by_seed = by_seed.reindex(columns=["accuracy", *list(NUMBERS)[2:]])
    seeds = by_seed.groupby(level="method")
    table = seeds.mean()
    table.insert(1, "std", seeds.accuracy.std())
    table = table.sort_values("accuracy", ascending=False, kind="stable")
    with_best = comparisons[comparisons.with_best.eq(True)]
    different = with_best[with_best.p_holm < LEVEL]
    table["is_alike"] = ~table.index.isin(different.against) & bool(len(with_best))
    return table


def overview_table(table: Frame, most: int | None = None) -> Table:
    """The overview as text, without columns that have no number."""
    keys = [k for k in NUMBERS if k == "accuracy" or table[k].notna().any()]
    rows = []
    for method, row in table.head(most or len(table)).iterrows():
        cells = [_cell(row, key) for key in keys]
        rows.append([str(method), MARK if row.is_alike else "", *cells])
    header = ["Method", "", *(NUMBERS[key][0] for key in keys)]
    note = MARK_NOTE if table.is_alike.any() else ""
    return Table("Test accuracy at the last round", header, rows, note=note)


def _cell(row: Any, key: str) -> str:
    _, scale, form = NUMBERS[key]
    value = row[key]
    return EMPTY if np.isnan(value) else format(scale * value, form)


def answer(table: Frame, comparisons: Frame) -> list[str]:
    """Which mean is highest, and whether another seed would say the same."""
    best, accuracy = str(table.index[0]), table.accuracy.iloc[0]
    with_best = comparisons[comparisons.with_best.eq(True)]
    tested = with_best[with_best.p_holm.notna()]
    sentences = [f"{best} has the highest mean accuracy, {100 * accuracy:.2f} %."]
    if len(with_best) > len(tested):
        sentences.append("One seed without the clients' accuracies cannot be tested.")
    if tested.empty:
        return sentences
    sure = tested[tested.p_holm < LEVEL]
    unsure = tested[tested.p_holm >= LEVEL]
    if len(sure):
        names = _list(sure.against, "every other method" if unsure.empty else "")
        p = _p_text(sure.p_holm.max())
        sentences.append(f"Another seed would say the same against {names} ({p}).")
    if len(unsure):
        sentences.append(_open_comparisons(unsure))
    if tested.seeds.min() == 1:
        sentences.append("One seed can answer only roughly.")
    elif tested.same_clients.all():
        sentences.append("All seeds have the same clients: this holds for them alone.")
    return sentences


def _open_comparisons(unsure: Frame) -> str:
    """Which comparisons are open, and how many seeds would decide them."""
    seeds = int(unsure.seeds.max())
    count = "1 seed does" if seeds == 1 else f"{seeds} seeds do"
    text = f"{count} not decide whether it is better than {_list(unsure.against)}"
    needed = [
        f"{row.needed:.0f}" if np.isfinite(row.needed) else "more than 100"
        for row in unsure.itertuples()
    ]
    if len(set(needed)) == 1:
        needed = needed[:1]
    if len(needed) > MOST_NAMES:
        needed = [f"at least {min(unsure.needed.fillna(np.inf)):.0f}"]
    return f"{text}; {_list(needed)} would, if the differences stay as they are."


def _list(names: Any, every: str = "") -> str:
    """Names in a sentence; of many, the first ones and how many more there are."""
    if every and len(names) > 1:
        return every
    names_ = list(names)
    if len(names_) > MOST_NAMES:
        names_ = [*names_[: MOST_NAMES - 1], f"{len(names_) - MOST_NAMES + 1} others"]
    *first, last = names_
    return f"{', '.join(first)} and {last}" if first else last


def _p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def screen(table: Table, sentences: Sequence[str], more: int = 0) -> str:
    """A table and sentences in 80 columns."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    name, *numbers = table.header
    shown.add_column(name, no_wrap=True, overflow="ellipsis")
    for title in numbers:
        shown.add_column(title, justify="right")
    for row in table.rows:
        shown.add_row(*map(_plain, row))
    text = io.StringIO()
    Console(file=text, width=WIDTH, color_system=None, markup=False).print(shown)
    lines = [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]
    if more:
        lines.append(f"... and {more} more")
    if table.note:
        lines.append(table.note)
    for sentence in sentences:
        lines += textwrap.wrap(
            sentence, WIDTH, break_long_words=False, break_on_hyphens=False
        )
    return "\n".join(lines)


def _plain(text: str) -> str:
    return " ".join(text.split())
