"""LaTeX as a paper shows it, and rows that are stated once."""

import numpy as np
import pytest

from pfljax.report import latex
from pfljax.report.columns import COLUMNS, Row, Table, stated_once


def row(method, judged, accuracy, ranked=True):
    """Two seeds, every other column at 1/4."""
    values = {column.key: np.full(2, 0.25) for column in COLUMNS}
    values["accuracy"] = np.array([accuracy, accuracy + 0.1])
    return Row(method, judged, ranked, (0, 1), (5, 5), values)


@pytest.fixture
def table():
    rows = (
        row("Ditto", "personal", 0.7),
        row("SuPerFed", "personal", 0.8),
        row("SuPerFed", "λ = 0.5", 0.9),
    )
    return Table("last", "Test metrics at the last round. Much more.", COLUMNS, rows)


def test_a_paper_s_table_has_a_row_a_method_and_few_columns(table):
    text = latex.short(table)
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    assert body.split("\n")[1:-1] == [
        r"Ditto & \textbf{75.00 $\pm$ 7.07} & 25.00 & \textbf{25.00} & 0.00 \\",
        r"SuPerFed & \textbf{85.00 $\pm$ 7.07} & 25.00 & \textbf{25.00} & 0.00 \\",
    ]
    assert r"\begin{tabular}{lrrrr}" in text
    assert "Test metrics at the last round. Means over 2 seeds" in text
    assert "resizebox" not in text
    assert latex.long(table).count(r" \\" + "\n") == 1 + 3  # all rows in the long


def test_the_first_line_names_the_packages(table):
    first, *_ = latex.short(table).splitlines()
    assert first == r"% Needs in the preamble: \usepackage{booktabs}"
    first, *_ = latex.long(table).splitlines()
    assert first.endswith(r"\usepackage{booktabs} \usepackage{graphicx}")


def test_a_table_of_other_columns_keeps_the_first(table):
    others = tuple(c for c in COLUMNS if c.key in ("ece", "best10", "weighted"))
    shown = latex.few(table._replace(name="target", columns=others))
    assert shown.columns == others


def test_equal_rows_of_a_method_are_one():
    rows = [row("FedAvg", judged, 0.5) for judged in ("personal", "server")]
    rows += [row("FedAvg", "oracle", 0.5, ranked=False), row("FedProx", "server", 0.5)]
    rows += [row("FedProx", text, 0.6) for text in ("personal", "λ = 0.5")]
    told = [(each.method, each.judged) for each in stated_once(rows)]
    assert told == [
        ("FedAvg", "personal = server"),
        ("FedAvg", "oracle"),
        ("FedProx", "server"),
        ("FedProx", "personal = (λ = 0.5)"),
    ]


def test_rows_without_numbers_are_not_equal():
    rows = [row("FedAvg", judged, np.nan) for judged in ("personal", "server")]
    assert len(stated_once(rows)) == 2
