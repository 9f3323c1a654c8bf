"""The answer on one screen, which also stands at the top of a page.

`average_seeds` makes one row of numbers for each method, and `overview_table` formats
them. `answer` says in sentences which method is best and how sure that is. `screen`
prints a table and sentences in 80 columns.
"""

import textwrap
from collections.abc import Iterable, Sequence

from pfljax.evaluation.significance import LEVEL
from pfljax.report.captions import COLUMN_NOTES
from pfljax.report.frames import Frame
from pfljax.report.lead import Lead, read_lead
from pfljax.report.tables import Column, Table, format_rows, keep_known, values_by_seed
from pfljax.runtime.words import count_noun

WIDTH = 80  # columns of a terminal
MOST_ROWS = 12  # on a screen
MOST_NAMES = 4  # in a sentence


def list_columns(lead: Lead) -> tuple[Column, ...]:
    """The columns of the overview."""
    signed = lead.scale, f"+{lead.form}"
    return (
        Column(lead.name, f"Test {lead.short}", lead.scale, lead.form),
        Column("std", "Std", lead.scale, lead.form),
        Column("gain_local", "Over local", *signed),
        Column("gain_tuned", "Over tuned FedAvg", *signed),
        Column("worse_than_local", "Worse off", 100, ".1f"),
        Column("mb", "MB", 1, ".2f"),
        Column("seconds", "Seconds", 1, ".2f"),
        Column("clock", "Virtual seconds", 1, ".1f"),
    )


def average_seeds(frame: Frame, with_best: Frame) -> Frame:
    """A row for each method by the metric of its main model at the last round.

    Args:
      frame: the tidy table of runs.
      with_best: the comparisons with the best method.

    Returns:
      The columns of `list_columns` as means over seeds, and `is_alike`: whether the
      method is the best, or not distinguishable from it. A method that has `diverged`
      is last, without numbers.
    """
    values = values_by_seed(frame[frame.main & frame.seed.isin(common_seeds(frame))])
    values["mb"] = (values.bytes_up + values.bytes_down) / 1e6
    lead = read_lead(frame)
    names = [column.key for column in list_columns(lead)]
    seeds = values.reindex(columns=names).groupby(level="method")
    methods = seeds.mean()
    methods["std"] = seeds[lead.name].std()
    # The first run of a comparison also starts the devices.
    methods["seconds"] = seeds.seconds.median()
    different = with_best.against[with_best.p_holm < LEVEL]
    methods["is_alike"] = ~methods.index.isin(different) & bool(len(with_best))
    methods["diverged"] = values.diverged.eq(True).groupby(level="method").any()
    methods.loc[methods.diverged, names] = float("nan")
    methods["is_alike"] &= ~methods.diverged
    methods["seeds"] = seeds[lead.name].size()
    return methods.sort_values(lead.name, ascending=lead.sign < 0, kind="stable")


def common_seeds(frame: Frame) -> set[int]:
    """The seeds that all methods have; all seeds if no seed is common."""
    seeds = frame.groupby("method").seed.agg(set)
    return set.intersection(*seeds) or set.union(*seeds)


def describe_seeds(frame: Frame) -> list[str]:
    """A sentence on seeds that are left out, because some method lacks them."""
    others = sorted(set(frame.seed) - common_seeds(frame))
    if not others:
        return []
    names = list_names(map(str, others))
    return [f"Some methods have no run of seed {names}; the table is of the others."]


def overview_table(methods: Frame, lead: Lead, most: int | None = None) -> Table:
    """The methods, or the first so many, as text; a star marks those that are alike."""
    first, *others = list_columns(lead)
    columns = [first, *keep_known(methods, others)]
    shown = methods.head(most or len(methods))
    marks = shown.is_alike.map({True: "*", False: ""})
    numbers = format_rows(shown, columns)
    heads = zip(shown.index, marks, strict=True)
    rows = [[*head, *cells] for head, cells in zip(heads, numbers, strict=True)]
    if len(shown) < len(methods):
        more = f"... and {len(methods) - len(shown)} more"
        rows.append([more, *[""] * (len(columns) + 1)])
    keys = ["lead", *(column.key for column in columns[1:])]
    if methods.is_alike.any():
        keys.append("is_alike")
    notes = [lead.fill(COLUMN_NOTES[key]) for key in keys if key in COLUMN_NOTES]
    notes.append(f"n = {count_noun(int(shown.seeds.max()), 'seed')}.")
    if shown.diverged.any():
        notes.append(f"Diverged: {list_names(shown.index[shown.diverged])}.")
    header = ["Method", "", *(column.title for column in columns)]
    title = f"Test {lead.title} at the last round"
    return Table(title, header, rows, note=" ".join(notes))


def answer(methods: Frame, with_best: Frame, lead: Lead) -> list[str]:
    """Sentences: the best mean, and whether another seed would say the same."""
    if with_best.empty:
        return []
    most = "highest" if lead.sign > 0 else "lowest"
    mean = f"mean {lead.title}, {lead.text(methods[lead.name].iloc[0])}"
    sentences = [f"{with_best.method.iloc[0]} has the {most} {mean}."]
    tested = with_best[with_best.p_holm.notna()]
    if len(tested) < len(with_best):
        sentences.append(
            "A single seed cannot be tested without the numbers of its clients."
        )
    worse = tested[tested.p_holm < LEVEL]
    undecided = tested[tested.p_holm >= LEVEL]
    if len(worse):
        sentences.append(_describe_worse(worse, is_all=undecided.empty))
    if len(undecided):
        sentences.append(_describe_undecided(undecided))
    rough = tested[tested.seeds == 1]
    if len(rough):
        sentences.append(
            f"With one seed the answer on {list_names(rough.against)} is rough."
        )
    elif len(tested) and tested.same_clients.all():
        sentences.append(
            "All seeds have the same clients, so this holds for these clients only."
        )
    return sentences


def choose_on_validation(frame: Frame, where: str = "Validation examples") -> list[str]:
    """A sentence: the method that validation examples choose, and its test metric."""
    lead = read_lead(frame)
    rows = frame[frame.main & frame["last"] & (frame.clients == "all")]
    rows = rows[rows.leads & rows.seed.isin(common_seeds(frame))]
    means = rows.pivot_table("mean", "method", "split")
    means = means.drop(index=rows.method[rows.diverged.eq(True)].unique())
    if "validation" not in means or len(means) < 2:
        return []
    chosen = means.loc[(lead.sign * means.validation).idxmax()]
    return [
        f"{where} choose {chosen.name} ({lead.text(chosen.validation)} on them); "
        f"it reaches {lead.text(chosen.test)} on test examples."
    ]


def _describe_worse(worse: Frame, is_all: bool) -> str:
    """The methods that the best one is better than."""
    names = (
        "every other method" if is_all and len(worse) > 1 else list_names(worse.against)
    )
    p = worse.p_holm.max()
    p_text = "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
    seeds = ", and another seed would say the same" if worse.seeds.min() > 1 else ""
    return f"It is better than {names}{seeds} ({p_text})."


def _describe_undecided(undecided: Frame) -> str:
    """The comparisons that the seeds cannot decide, and how many seeds could."""
    seeds = count_noun(int(undecided.seeds.max()), "seed")
    # `seeds_needed` counts from five on; fewer may do, by the moderated t.
    words = {"nan": "over 100", "5": "at most 5"}
    most = f"{undecided.needed.astype(float).max(skipna=False):.0f}"
    what = "it" if len(undecided) == 1 else "all of them"
    return (
        f"With {seeds} it is undecided against {list_names(undecided.against)}: "
        f"{words.get(most, most)} seeds would decide {what}."
    )


def list_names(names: Iterable[str]) -> str:
    """Names in a sentence; of many, the first ones and how many more there are."""
    *first, last = names
    if len(first) >= MOST_NAMES:
        last = f"{len(first) + 2 - MOST_NAMES} others"
        first = first[: MOST_NAMES - 1]
    return f"{', '.join(first)} and {last}" if first else last


def screen(table: Table, sentences: Sequence[str]) -> str:
    """A table and sentences in 80 columns; the best cells are **bold**."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    rows = [[" ".join(text.split()) for text in row] for row in table.rows]
    for i, j in table.best:
        rows[i][j] = f"**{rows[i][j]}**"
    widths = [
        max(1, *map(len, [*title.split(), *cells]))
        for title, *cells in zip(table.header, *rows, strict=True)
    ]
    # The names of methods give way: a number that is cut would be another number.
    widths[0] = min(widths[0], WIDTH - sum(widths[1:]) - 2 * len(widths))
    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for i, (title, width) in enumerate(zip(table.header, widths, strict=True)):
        justify = "right" if i else "left"
        shown.add_column(title, justify=justify, width=width, no_wrap=not i)
    for row in rows:
        shown.add_row(*row)
    console = Console(width=WIDTH, color_system=None, markup=False, force_jupyter=False)
    with console.capture() as capture:
        console.print(shown)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    for text in sentences:
        lines += textwrap.wrap(
            text, WIDTH, break_long_words=False, break_on_hyphens=False
        )
    return "\n".join(lines)
