"""The table that a paper prints: a row for each method, a column for each value."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pfljax.evaluation.significance import LEVEL
from pfljax.report import pairs
from pfljax.report.captions import NOTES
from pfljax.report.frames import Frame
from pfljax.report.lead import EMPTY, Lead, read_lead
from pfljax.report.seeds import Group
from pfljax.report.tables import Table
from pfljax.report.tidy import main_means
from pfljax.runs.names import value_text
from pfljax.runs.settings import FIELDS, Experiment
from pfljax.runtime.words import count_noun

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Cell(NamedTuple):
    """What one method reaches at one value."""

    means: Mapping[int, float]  # of the metric by seed
    mark: str = ""  # "best", "alike", or "" for a method that is worse


Cells = dict[str, dict[str, Cell]]  # by value and method


def columns_table(
    groups: Sequence[Group],
    frame: Frame,
    name: str,
    over: Mapping[str, Sequence[Any]] = NOTHING,
) -> Table:
    """The metric of the main models, mean ± std over seeds, by the setting `name`.

    Rows and columns are in the order of `over`, the values of a sweep.

    Raises:
      ValueError: the runs have no such setting or option, or all have one value.
    """
    lead = read_lead(frame)
    cells = _compare_columns(groups, frame, lead, name)
    cells = {value: cells[value] for value in _in_order(cells, name, over)}
    methods = dict.fromkeys(row for column in cells.values() for row in column)
    for other in over:
        methods = _in_order(methods, other, over)
    most = max(len(c.means) for column in cells.values() for c in column.values())
    rows = [
        [m, *(_text(column.get(m), most, lead) for column in cells.values())]
        for m in methods
    ]
    best = {
        (i, j)
        for j, column in enumerate(cells.values(), start=1)
        for i, method in enumerate(methods)
        if method in column and column[method].mark == "best"
    }
    header = ["Method", *cells]
    title = f"Test {lead.title} by {name}"
    note = f"{lead.fill(NOTES['Columns'])} n = {count_noun(most, 'seed')}."
    return Table(title, header, rows, frozenset(best), note)


def _in_order(
    texts: Iterable[str], name: str, over: Mapping[str, Sequence[Any]]
) -> list[str]:
    """The values of an axis, or labels with them, in the order of `over`."""
    values = [value_text(value) for value in over.get(name, ())]
    places = {
        text: i for i, value in enumerate(values) for text in (value, f"{name}={value}")
    }
    return sorted(texts, key=lambda text: places.get(text, len(values)))


def _text(cell: Cell | None, most: int, lead: Lead) -> str:
    """The mean ± std, with a star if the best is not known to be better."""
    if cell is None or not cell.means:
        return EMPTY
    values = np.array([*cell.means.values()])
    text = _mean(cell, lead)
    if len(values) > 1:
        text += f" ± {lead.number(values.std(ddof=1))}"
    if len(values) < most:
        text += f" (n = {len(values)})"
    return text + ("*" if cell.mark == "alike" else "")


def _compare_columns(
    groups: Sequence[Group], frame: Frame, lead: Lead, name: str
) -> Cells:
    """The cells of the table; methods are compared within each column."""
    if name == "seed":
        raise ValueError(
            "--columns is 'seed', over which the table takes means; choose another "
            "setting in which the runs differ"
        )
    means = main_means(frame)
    columns: dict[str, list[pairs.Scores]] = {}
    for group in groups:
        value = axis_text(group.experiment, name)
        row = label_without(group.runs[0].label, name, value)
        scores = pairs.make_scores(group, means.get(group.label, {}), lead)
        columns.setdefault(value, []).append(scores._replace(method=row))
    if len(columns) < 2:
        raise ValueError(
            f"--columns is {name!r}, but all runs have {name}={next(iter(columns))}; "
            "choose a setting in which they differ"
        )
    return {value: _compare(scores, value, lead) for value, scores in columns.items()}


def _compare(scores: Sequence[pairs.Scores], value: str, lead: Lead) -> dict[str, Cell]:
    """The cells of one column."""
    cells = {
        each.method: Cell({seed: lead.sign * m for seed, m in each.means.items()})
        for each in scores
    }
    if len(cells) < len(scores):
        names = [each.method for each in scores]
        twice = next(n for n in names if names.count(n) > 1)
        raise ValueError(
            f"two methods are called {twice!r} at {value}; give them other labels"
        )
    comparisons, _ = pairs.compare(scores)
    with_best = comparisons[comparisons.with_best.eq(True)]
    for row in with_best.itertuples():
        best, other = cells[row.method], cells[row.against]
        cells[row.method] = best._replace(mark="best")
        if _mean(other, lead) == _mean(best, lead):  # as shown
            cells[row.against] = other._replace(mark="best")
        elif not row.p_holm < LEVEL:
            cells[row.against] = other._replace(mark="alike")
    return cells


def _mean(cell: Cell, lead: Lead) -> str:
    return lead.number(float(np.mean([*cell.means.values()])))


def axis_text(experiment: Experiment, name: str) -> str:
    """The value of a setting, or of an option of the method, as text.

    Raises:
      ValueError: there is no such setting or option.
    """
    options = experiment.algorithm.options
    if name in options:
        return value_text(options[name])
    if name not in FIELDS:
        raise ValueError(f"unknown setting or option {name!r}; see `pfljax run --help`")
    value: Any = getattr(experiment, name)
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "None"
    return value_text(value)


def label_without(label: str, name: str, value: str) -> str:
    """A label of a sweep without the word of one of its axes."""
    word = value if name == "algorithm" else f"{name}={value}"
    words = f" {label} ".replace(f" {word} ", " ").strip()
    return words or label
