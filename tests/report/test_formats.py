import csv
import io
import re

import numpy as np
import pytest

from pfljax.report import formats, latex
from pfljax.report.columns import COLUMNS, Row, Table


def table_of(*rows):
    """A table of (method, accuracies over seeds, ranked); all else is undefined."""
    built = []
    for method, accuracy, ranked in rows:
        n = len(accuracy)
        values = {c.key: np.full(n, np.nan) for c in COLUMNS}
        values["accuracy"] = np.array(accuracy, float)
        seeds = tuple(range(n))
        built.append(Row(method, "personal", ranked, seeds, (5,) * n, values))
    return Table("last", "A 10 % caption & more", COLUMNS, tuple(built))


@pytest.fixture
def table():
    return table_of(
        ("a_b & 5% | <i>", [0.5, 0.7, 0.9], True),
        ("second {}$#~^\\", [0.201, 0.4, 0.599], True),
        ("third λ", [0.1, 0.3005, np.nan], True),
        ("oracle", [0.99, 0.99, 0.99], False),
    )


def test_n_counts_the_seeds_that_have_the_number(table):
    assert [row[-2].text for row in formats.cells(table)] == ["3", "3", "2", "3"]


def test_mean_and_sample_std_over_seeds(table):
    texts = [row[2].text for row in formats.cells(table)]
    apart = 100 * (0.3005 - 0.1) / np.sqrt(2)  # of two, from their mean and back
    expected = ["70.00 ± 20.00", "40.00 ± 19.90", f"20.02 ± {apart:.2f}"]
    assert texts == [*expected, "99.00 ± 0.00"]


def test_best_and_second_leave_out_the_oracle(table):
    marks = [row[2].mark for row in formats.cells(table)]
    assert marks == [formats.BEST, formats.SECOND, "", ""]


def test_what_is_shown_alike_is_marked_alike():
    rows = [(name, [0.5], True) for name in "abc"]
    table = table_of(*rows)
    for row, value in zip(table.rows, (0.1, 0.100001, 0.3), strict=True):
        row.values["ece"][:] = value
    at = 2 + [c.key for c in COLUMNS].index("ece")
    marks = [row[at].mark for row in formats.cells(table)]
    assert marks == [formats.BEST, formats.BEST, formats.SECOND]


def test_what_cannot_be_told_from_the_best_is_as_bold():
    seeds = np.array([0.6, 0.7, 0.9])
    rows = [
        ("best", seeds, True),
        ("alike", seeds - [0.04, -0.02, 0.05], True),  # t of 1.1, p of .40
        ("next", seeds - [0.05, 0.06, 0.055], True),  # t of 19, p of .003
        ("last", seeds - [0.1, 0.11, 0.105], True),
    ]
    cells = formats.cells(table_of(*rows))
    marks = [formats.BEST, formats.ALIKE, formats.SECOND, ""]
    assert [row[2].mark for row in cells] == marks
    lines = formats.markdown(table_of(*rows)).splitlines()
    assert [("**" in line) for line in lines[2:]] == [True, True, False, False]
    assert latex.long(table_of(*rows)).count(r"\textbf") == 2


def test_one_seed_alone_makes_no_accuracy_bold():
    cells = formats.cells(table_of(("a", [0.5], True), ("b", [0.3], True)))
    assert [row[2].mark for row in cells] == ["", ""]


def test_one_seed_has_no_std():
    (row,) = formats.cells(table_of(("a", [0.5], True)))
    assert row[2] == formats.Cell("50.00")


def test_less_is_better_for_errors():
    table = table_of(("a", [0.5], True), ("b", [0.6], True))
    table.rows[0].values["ece"][:] = 0.1
    table.rows[1].values["ece"][:] = 0.2
    at = 2 + [c.key for c in COLUMNS].index("ece")
    marks = [row[at].mark for row in formats.cells(table)]
    assert marks == [formats.BEST, formats.SECOND]


def test_markdown_has_equal_columns_and_no_open_pipe(table):
    lines = formats.markdown(table).splitlines()
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
    assert widths == {len(formats.headings(table)) + 1}
    assert "**70.00 ± 20.00**" in lines[2]
    assert "\\<i>" in lines[2]


def test_latex_is_balanced_and_escaped(table):
    text = latex.long(table)
    assert re.findall(r"\\(begin|end)\{(\w+)\}", text) == [
        ("begin", "table"),
        ("begin", "tabular"),
        ("end", "tabular"),
        ("end", "table"),
    ]
    bare = re.sub(r"\\[\\{}&%$#_]", "", text)  # what is escaped is harmless
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert text.isascii()
    # The two comments that are meant: the packages, and a line that does not end.
    body = bare.partition("\n")[2].replace("!}{%\n", "!}{\n")
    assert not set("%#~") & set(body)
    carets = re.sub(r"\$[^$]*\$", "", body)
    assert not set("_^") & set(carets)


def test_latex_rows_have_equal_cells(table):
    lines = latex.long(table).splitlines()
    start, stop = lines.index(r"\midrule"), lines.index(r"\bottomrule")
    counts = {
        len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines[start + 1 : stop]
    }
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", "\n".join(lines))
    assert counts == {len(columns[1])} == {len(formats.headings(table))}
    assert r"\textbf{70.00 $\pm$ 20.00}" in lines[start + 1]
    assert r"\underline{40.00 $\pm$ 19.90}" in lines[start + 2]
    assert r"a\_b \& 5\%" in lines[start + 1]


def test_csv_leaves_out_what_is_not_finite():
    lines = [
        ["a", "b"],
        [np.nan, np.float32(0.1)],
        [np.float32(np.inf), None],
        [1, 0.5],
    ]
    assert formats.csv_text(lines) == "a,b\n,0.1\n,\n1,0.5\n"


def test_csv_keeps_raw_values(table):
    means = list(csv.DictReader(io.StringIO(formats.csv_means(table))))
    assert float(means[0]["accuracy_mean"]) == np.mean([0.5, 0.7, 0.9])
    assert float(means[0]["accuracy_std_over_seeds"]) == pytest.approx(0.2)
    assert means[0]["ece_mean"] == ""
    assert means[0]["method"] == "a_b & 5% | <i>"
    seeds = list(csv.DictReader(io.StringIO(formats.csv_seeds(table))))
    assert [row["accuracy"] for row in seeds[:3]] == ["0.5", "0.7", "0.9"]
    assert [row["seed"] for row in seeds[:3]] == ["0", "1", "2"]
