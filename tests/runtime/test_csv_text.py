"""Cells of .csv files: a spreadsheet executes none, and numbers stay numbers."""

import csv

import pytest

from pfljax.runtime.csv_text import format_csv


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("@sum", "'@sum"),
        ("-a", "'-a"),
        ("+a", "'+a"),
        ("\ta", "'\ta"),
        ("a=1", "a=1"),
        ("\x1b[31m\u202e", r"\x1b[31m\u202e"),
        ("two\nlines, ü", "two\nlines, ü"),
        ("-0.5", "-0.5"),
        (-0.5, "-0.5"),
        (None, ""),
    ],
)
def test_a_cell_is_what_it_looks_like(value, cell):
    assert list(csv.reader(format_csv([[value, 1]]).splitlines(True))) == [[cell, "1"]]
