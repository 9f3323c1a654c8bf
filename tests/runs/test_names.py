"""Folders that nobody named: one for each run, sweep and comparison."""

import re
from pathlib import Path

import pytest

import tiny
from pfljax import Experiment
from pfljax.core.components import Component
from pfljax.runs import checks, names

PLAIN = "runs/digits-ditto-s0"


def folder_of(options="", *flags):
    """Where `pfljax run --algorithm dittoOPTIONS FLAGS` goes."""
    return checks.resolve(tiny.parsed("--algorithm", f"ditto{options}", *flags)).folder


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_option_has_a_folder_of_its_own():
    folders = [
        folder_of(*flags)
        for flags in (
            [":lam=1.0"],
            [":lam=2.0"],
            [":lam=2.0", "--rounds", "50"],
            [":lam=2.0", "--dataset", "digits:every=2"],
            [":lam=2.0", "--cohort", "6"],
        )
    ]
    assert len({PLAIN, *folders}) == 6
    assert folder_of() == folder_of(":lam=0.1") == PLAIN
    assert re.fullmatch(PLAIN + r"-lam=2-rounds=50-[0-9a-f]{6}", folders[2])


def test_what_changes_no_number_changes_no_folder():
    flags = "--keep-checkpoints 5 --label mine --devices 1 --state-storage host"
    assert folder_of("", *flags.split()) == PLAIN


def test_equal_numbers_have_one_folder():
    a, b = (
        Experiment(
            Component("ditto", {"lam": lam}), lr=lam, dataset=f"synthetic:alpha={lam}"
        )
        for lam in (2, 2.0)
    )
    assert a.folder == b.folder == checks.resolve(a).folder
    c = Experiment(
        Component("ditto", {"lam": 2 + 1e-9}), lr=2, dataset="synthetic:alpha=2"
    )
    assert c.folder != a.folder  # its digest has all digits
    assert c.folder[:-6] == a.folder[:-6]


def test_any_text_and_any_number_of_settings_make_a_name():
    path = "/data of mine/ä/" + 90 * "x" + ".npz"
    odd = Experiment(dataset=f"npz:path={path}", cohort=3, lr=0.1, momentum=0.5)
    name = odd.folder.removeprefix("runs/")
    assert re.fullmatch(r"npz-fedavg-s0-[\w.=,-]{1,48}-[0-9a-f]{6}", name)
    other = odd.replace(dataset=f"npz:path=/elsewhere{path}")
    assert other.folder != odd.folder


def test_a_comparison_is_called_by_its_runs():
    a, b, c = (Path("runs") / name for name in ("ditto-s0", "local-s0", "fedavg-s0"))
    both = names.comparison([a, b])
    assert re.fullmatch(r"runs/report-ditto-s0-local-s0-[0-9a-f]{6}", both)
    assert names.comparison([a.absolute(), b]) == both
    others = [[b, a], [a], [a, b, c], [a, Path("elsewhere") / b.name]]
    assert len({both, *map(names.comparison, others)}) == 5
    assert names.comparison([a, b], [0.8]) != both
    of_grid = names.comparison([Path("out") / m / "s0" for m in ("ditto", "local")])
    assert of_grid.startswith("runs/report-ditto-s0-local-s0-")
    assert "-and-1-more-" in names.comparison([a, b, c])


def test_files_are_called_by_their_names():
    assert names.short("npz:path=/rows/of/mine/rows.npz,classes=3") == (
        "npz:path=rows.npz,classes=3"
    )
    assert names.short("shards:per_client=2") == "shards:per_client=2"
