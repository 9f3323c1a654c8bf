"""The answer on one screen: a row for each method, and a few sentences."""

import io
import textwrap
from collections.abc import Iterable, Sequence

import numpy as np

from pfljax.evaluation.significance import LEVEL
from pfljax.report.frames import Frame
from pfljax.report.tables import Column, Table, keep_known
from pfljax.report.tidy import select_main
from pfljax.runtime.words import count_noun

WIDTH = 80  # columns of a terminal
MOST_ROWS = 15  # on a screen
MOST_NAMES = 4  # in a sentence
MARK = "*"
MARK_NOTE = f"{MARK} not distinguishable from the best"
COLUMNS = (
    Column("accuracy", "Test acc. %", 100, ".2f"),
    Column("std", "Std", 100, ".2f"),
    Column("gain_local", "Over local", 100, "+.2f"),
    Column("gain_tuned", "Over tuned FedAvg", 100, "+.2f"),
    Column("worse_than_local", "Worse off %", 100, ".1f"),
    Column("mb", "MB", 1, ".2f"),
    Column("seconds", "Seconds", 1, ".2f"),
    Column("clock", "Virtual seconds", 1, ".1f"),
)


def overview(frame: Frame, comparisons: Frame) -> Frame:
    """A row for each method by the accuracy of its main model at the last round.

    `is_alike` is whether it is the best, or not distinguishable from it.
    """
    rows = select_main(frame[frame["last"]])
    rows = rows[rows.seed.isin(common_seeds(frame))]
    wide = rows.pivot_table("mean", ["method", "seed"], "metric", dropna=False)
    spent = rows.groupby(["method", "seed"])
    spent = spent[["bytes_up", "bytes_down", "seconds", "clock"]].first()
    by_seed = wide.join(spent).assign(mb=(spent.bytes_up + spent.bytes_down) / 1e6)
    names = [column.key for column in COLUMNS if column.key != "std"]
    by_seed = by_seed.reindex(columns=names)
    seeds = by_seed.groupby(level="method")
    table = seeds.mean()
    table.insert(1, "std", seeds.accuracy.std())
    # The first run of a comparison also starts the devices.
    table["seconds"] = seeds.seconds.median()
    table = table.sort_values("accuracy", ascending=False, kind="stable")
    with_best = comparisons[comparisons.with_best.eq(True)]
    different = with_best[with_best.p_holm < LEVEL]
    table["is_alike"] = ~table.index.isin(different.against) & bool(len(with_best))
    return table


def common_seeds(frame: Frame) -> set[int]:
    """The seeds that all methods have; all seeds if no seed is common."""
    seeds = frame.groupby("method").seed.agg(set)
    return set.intersection(*seeds) or set.union(*seeds)


def describe_seeds(frame: Frame) -> list[str]:
    """A sentence on seeds that are left out, because some method lacks them."""
    others = sorted(set(frame.seed) - common_seeds(frame))
    if not others:
        return []
    names = _list(map(str, others))
    return [f"Some methods have no run of seed {names}; the table is of the others."]


def overview_table(table: Frame, most: int | None = None) -> Table:
    """The overview as text, without columns that have no number."""
    accuracy, *others = COLUMNS
    columns = [accuracy, *keep_known(table, others)]
    rows = []
    for method, row in table.head(most or len(table)).iterrows():
        mark = MARK if row.is_alike else ""
        rows.append([str(method), mark, *(c.text(row[c.key]) for c in columns)])
    header = ["Method", "", *(column.title for column in columns)]
    notes = [MARK_NOTE] if table.is_alike.any() else []
    if len(rows) < len(table):
        notes.insert(0, f"... and {len(table) - len(rows)} more")
    note = "\n".join(notes)
    return Table("Test accuracy at the last round", header, rows, note=note)


def answer(table: Frame, comparisons: Frame) -> list[str]:
    """Sentences: the highest mean, and whether another seed would say the same."""
    if comparisons.empty:
        return []
    best, accuracy = str(table.index[0]), table.accuracy.iloc[0]
    with_best = comparisons[comparisons.with_best.eq(True)]
    tested = with_best[with_best.p_holm.notna()]
    sentences = [f"{best} has the highest mean accuracy, {100 * accuracy:.2f} %."]
    if len(with_best) > len(tested):
        sentences.append(
            "A single seed cannot be tested without the accuracies of its clients."
        )
    if tested.empty:
        return sentences
    sure = tested[tested.p_holm < LEVEL]
    unsure = tested[tested.p_holm >= LEVEL]
    if len(sure):
        is_all = unsure.empty and len(sure) > 1
        names = "every other method" if is_all else _list(sure.against)
        p = sure.p_holm.max()
        p_text = "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
        sentences.append(
            f"It is better than {names}, and another seed would say the same "
            f"({p_text})."
        )
    if len(unsure):
        sentences.append(_explain_unsure(unsure))
    rough = tested[tested.seeds == 1]
    if len(rough) == len(tested):
        sentences.append("With one seed this is only a rough answer.")
    elif len(rough):
        sentences.append(
            f"The answer about {_list(rough.against)} is rough: it has one seed."
        )
    elif tested.same_clients.all():
        sentences.append(
            "All seeds have the same clients, so this holds for these clients only."
        )
    return sentences


def _explain_unsure(unsure: Frame) -> str:
    """The comparisons that the seeds cannot decide, and how many seeds could."""
    seeds = count_noun(int(unsure.seeds.max()), "seed")
    text = f"With {seeds} it is undecided against {_list(unsure.against)}"
    needed = unsure.needed.astype(float)
    counts = ["over 100" if np.isnan(n) else f"{n:.0f}" for n in needed]
    # `seeds_needed` counts from five on; fewer may do, by the moderated t.
    counts = ["at most 5" if count == "5" else count for count in counts]
    if len(set(counts)) == 1:
        counts = counts[:1]
    if len(counts) > MOST_NAMES:
        counts = [f"at least {needed.min():.0f}"]
    return f"{text}: {_list(counts)} seeds would decide it."


def _list(names: Iterable[str]) -> str:
    """Names in a sentence; of many, the first ones and how many more there are."""
    *first, last = names
    if len(first) >= MOST_NAMES:
        last = f"{len(first) + 2 - MOST_NAMES} others"
        first = first[: MOST_NAMES - 1]
    return f"{', '.join(first)} and {last}" if first else last


def screen(table: Table, sentences: Sequence[str]) -> str:
    """A table and sentences in 80 columns."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    columns = list(zip(table.header, *table.rows, strict=True))
    widths = [max(map(len, " ".join(c).split()), default=1) for c in columns[1:]]
    # The names of methods give way: a number that is cut would be another number.
    rest = WIDTH - sum(widths) - 2 * len(columns)
    shown.add_column(table.header[0], max_width=rest, no_wrap=True, overflow="ellipsis")
    for title, width in zip(table.header[1:], widths, strict=True):
        shown.add_column(title, justify="right", min_width=width)
    for row in table.rows:
        shown.add_row(*(" ".join(text.split()) for text in row))
    text = io.StringIO()
    console = Console(
        file=text, width=WIDTH, color_system=None, markup=False, force_jupyter=False
    )
    console.print(shown)
    lines = [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]
    lines += table.note.splitlines()
    for sentence in sentences:
        lines += textwrap.wrap(
            sentence, WIDTH, break_long_words=False, break_on_hyphens=False
        )
    return "\n".join(lines)
