"""`pfljax report` replaces nothing without a word."""

import json
from pathlib import Path

import pytest

import tiny
from pfljax.cli import reporting


def told_of(*args):
    """(the page, what is said behind it) of `pfljax report ARGS`."""
    code, out, errors = tiny.main("report", *args)
    assert (code, errors) == (0, "")
    page, _, more = out.splitlines()[-1].removeprefix("see ").partition(", ")
    return Path(page), more


def written(runs, out, targets):
    """A comparison in little time."""
    Path(out).mkdir(parents=True, exist_ok=True)
    (Path(out) / "comparison.html").write_text(" ".join(map(str, runs)))
    return "the tables"


@pytest.fixture
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reporting, "write_comparison", written)


@pytest.mark.usefixtures("_here")
def test_every_comparison_has_a_folder_of_its_own():
    first, said = told_of("a", "b")
    assert (first.read_text(), said) == ("a b", "")
    second, said = told_of("a", "c")
    assert (second.read_text(), said) == ("a c", "")
    assert first.read_text() == "a b"
    assert told_of("a", "b") == (first, "")
    assert first.parent.parent == Path("runs")
    # A folder that the user names is the user's, who is told.
    assert told_of("a", "b", "--out", "mine") == (Path("mine/comparison.html"), "")
    assert told_of("a", "c", "--out", "mine")[1] == "in the place of an earlier one"


@pytest.mark.usefixtures("_here")
def test_a_sweep_s_page_stays_in_its_folder(tmp_path):
    over = {"mu": [0.0, 0.1]}
    grid = tmp_path / "grid"
    grid.mkdir()
    (grid / "sweep.csv").write_text(
        "mu,round,judged,lambda,split,metric,mean,std,weighted,worst10\n"
        "0.0,3,personal,,test,accuracy,0.5,0.1,0.5,0.2\n"
        "0.1,3,personal,,test,accuracy,0.6,0.1,0.6,0.2\n"
    )
    settings = {"method": {"algorithm": "superfed"}, "data": {"dataset": "digits"}}
    about = {"experiment": settings, "over": over}
    (grid / "sweep.json").write_text(json.dumps(about))
    assert told_of(grid) == (grid / "sweep.html", "")
    assert (grid / "comparison_sweep_long.tex").exists()
    assert not (tmp_path / "runs").exists()
