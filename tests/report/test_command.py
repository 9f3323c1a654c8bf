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


def written(runs, out, targets, unfinished=()):
    """A comparison in little time."""
    Path(out).mkdir(parents=True, exist_ok=True)
    left_out = [f"-{run}" for run in unfinished]
    (Path(out) / "comparison.html").write_text(" ".join(map(str, [*runs, *left_out])))
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
    settings = {"format": 2, "algorithm": "superfed", "dataset": "digits"}
    about = {"experiment": settings, "over": over}
    (grid / "sweep.json").write_text(json.dumps(about))
    assert told_of(grid) == (grid / "sweep.html", "")
    assert (grid / "comparison_sweep_long.tex").exists()
    assert not (tmp_path / "runs").exists()


def make_runs(*finished, begun=()):
    """Folders of runs as `pfljax compare` lays them."""
    for place in (*finished, *begun):
        Path(place).mkdir(parents=True)
        (Path(place) / "config.json").touch()
    for place in finished:
        (Path(place) / "summary.json").touch()


@pytest.mark.usefixtures("_here")
def test_a_comparison_s_folder_stands_for_its_runs():
    make_runs("which/ditto/s10", "which/ditto/s9", "which/local/s9", "alone")
    page, said = told_of("which")
    assert (page, said) == (Path("which/comparison.html"), "")
    runs = "which/local/s9 which/ditto/s9 which/ditto/s10"
    assert page.read_text() == runs
    # Beside other runs it is no folder to write to.
    page, _ = told_of("which", "alone")
    assert page.read_text() == f"{runs} alone"
    assert page.parent.parent == Path("runs")


@pytest.mark.usefixtures("_here")
def test_unfinished_runs_of_a_comparison_are_left_out():
    make_runs("which/local/s0", begun=["which/ditto/s0"])
    page, _ = told_of("which")
    assert page.read_text() == "which/local/s0 -which/ditto/s0"
    make_runs(begun=["begun/local/s0"])
    code, _, errors = tiny.main("report", "begun")
    assert code != 0
    assert "no run of begun is finished; its command goes on" in errors
