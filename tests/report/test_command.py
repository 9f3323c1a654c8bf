"""`pfljax report` replaces nothing without a word."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

import pfljax
import tiny
from pfljax.cli import report


def page_of(*args):
    """The page of `pfljax report ARGS`."""
    code, out, errors = tiny.main("report", *args)
    assert (code, errors) == (0, "")
    return Path(out.splitlines()[-1])


def written(runs, out, targets, unfinished=(), **options):
    """A comparison in little time."""
    Path(out).mkdir(parents=True, exist_ok=True)
    left_out = [f"-{run}" for run in unfinished]
    (Path(out) / "comparison.html").write_text(" ".join(map(str, [*runs, *left_out])))
    return "the tables"


@pytest.fixture
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "write_comparison", written)


@pytest.mark.usefixtures("_here")
def test_every_comparison_has_a_folder_of_its_own():
    first = page_of("a", "b")
    assert first.read_text() == "a b"
    assert page_of("a", "c").read_text() == "a c"
    assert first.read_text() == "a b"
    assert page_of("a", "b") == first
    assert first.parent.parent == Path("runs")
    assert page_of("a", "b", "--out", "mine") == Path("mine/comparison.html")


@pytest.mark.usefixtures("undrawn")
def test_one_run_has_its_own_page(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    assert page_of(copy) == copy / "report.html"
    assert (copy / "report.html").exists()
    out = tmp_path / "out"
    assert page_of(copy, "--out", out, "--figures", "svg") == out / "report.html"
    assert (out / "figures" / "learning_curves.svg").exists()
    assert not (out / "clients.csv").exists()


@pytest.mark.usefixtures("undrawn")
def test_the_clients_of_a_run_are_a_table(run_folder, tmp_path):
    page_of(run_folder, "--out", tmp_path, "--tables")
    with open(tmp_path / "clients.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    frame = pfljax.result(run_folder).frame()
    assert [row["metric"] for row in rows] == frame.metric.tolist()
    found = [float(row["value"] or "nan") for row in rows]
    np.testing.assert_allclose(found, frame.value, rtol=1e-6)


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
    page = page_of("which")
    assert page == Path("which/comparison.html")
    runs = "which/local/s9 which/ditto/s9 which/ditto/s10"
    assert page.read_text() == runs
    # Beside other runs it is no folder to write to.
    page = page_of("which", "alone")
    assert page.read_text() == f"{runs} alone"
    assert page.parent.parent == Path("runs")


@pytest.mark.usefixtures("_here")
def test_unfinished_runs_of_a_comparison_are_left_out():
    make_runs("which/local/s0", begun=["which/ditto/s0"])
    page = page_of("which")
    assert page.read_text() == "which/local/s0 -which/ditto/s0"
    make_runs(begun=["begun/local/s0"])
    code, _, errors = tiny.main("report", "begun")
    assert code != 0
    assert "no run of begun is finished; its command goes on" in errors


@pytest.mark.usefixtures("undrawn")
def test_labels_of_others_are_no_formulas_and_no_commands(make_run, tmp_path):
    """Of two runs with one label, the settings that differ stand beside it."""
    folders = [
        make_run(tmp_path / f"run{i}", "ditto", R=4, label="=1+1", dataset=dataset)
        for i, dataset in enumerate(["digits", "npz:path=\x1b[31m"])
    ]
    code, out, _ = tiny.main("report", *folders, "--out", tmp_path)
    assert code == 0
    assert "\x1b" not in out
    lines = (tmp_path / "comparison.csv").read_text().splitlines()
    labels = {next(csv.reader([line]))[0] for line in lines[1:]}
    assert labels == {
        "'=1+1 (dataset=digits)", r"'=1+1 (dataset=npz:path=\x1b[31m)"
    }  # fmt: skip


def test_an_error_commands_no_terminal():
    code, _, errors = tiny.main("report", "\x1b[31m")
    assert code == 2
    assert r"\x1b[31m" in errors
