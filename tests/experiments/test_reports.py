"""The reports of experiments/: tables and numbers are those of results/."""

import importlib
import re

import pytest

from checkout import EXPERIMENTS

NUMBER = re.compile(r"(?<![\d.])\d*\.\d+")
STUDIES = sorted(path.parent.name for path in EXPERIMENTS.glob("*/REPORT.md"))


def _text(paths):
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def _numbers(text):
    return {float(number) for number in NUMBER.findall(text)}


@pytest.fixture
def include(monkeypatch):
    """The script that puts the tables of results/ into the reports."""
    monkeypatch.syspath_prepend(EXPERIMENTS)
    return importlib.import_module("shared.include")


@pytest.mark.parametrize("study", STUDIES)
def test_tables_are_those_of_results(include, study):
    report = EXPERIMENTS / study / "REPORT.md"
    stale = f"{study}: run python experiments/shared/include.py"
    assert include.included(report) == report.read_text(encoding="utf-8"), stale


def test_a_changed_result_changes_the_report(include, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x.md").write_text("| new |\n")
    report = tmp_path / "REPORT.md"
    report.write_text("a\n<!-- results/x.md -->\n| old |\n<!-- /results/x.md -->\nb\n")
    expected = "a\n<!-- results/x.md -->\n| new |\n<!-- /results/x.md -->\nb\n"
    assert include.included(report) == expected


def test_every_number_of_superfed_stands_in_a_result():
    folder = EXPERIMENTS / "superfed_kdd22"
    known = _numbers(_text(folder.glob("results/*.md")) + _text(folder.glob("*.py")))
    assert _numbers(_text([folder / "REPORT.md"])) <= known


def test_every_number_of_the_overview_stands_in_its_study():
    """So that new results do not leave an old number in experiments/README.md."""
    rows = _text([EXPERIMENTS / "README.md"]).splitlines()
    for study in STUDIES:
        (row,) = (row for row in rows if row.startswith(f"| `{study}/`"))
        folder = EXPERIMENTS / study
        known = _text([folder / "REPORT.md", *folder.glob("results/*.md")])
        assert _numbers(row) <= _numbers(known), study
