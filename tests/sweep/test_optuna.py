"""The loop with Optuna of docs/comparing.md, with a stub of what it calls."""

import sys
from types import SimpleNamespace

import pytest

import pages
from checkout import ROOT
from pfljax import Experiment, run


class TrialPruned(Exception):  # noqa: N818
    """As Optuna's."""


class Trial:
    """The second of two trials is pruned at its second report."""

    def __init__(self, number):
        self.number, self.reports = number, {}

    def suggest_float(self, name, low, high, log):
        return (low * high) ** 0.5 * (1 + self.number)

    def report(self, value, step):
        self.reports[step] = value

    def should_prune(self):
        return self.number == 1 and len(self.reports) == 2


class Study:
    """Runs the trials."""

    def __init__(self, **options):
        self.trials, self.values = [], []

    def optimize(self, objective, n_trials):
        self.trials = [Trial(0), Trial(1)]
        for trial in self.trials:
            try:
                self.values.append(objective(trial))
            except TrialPruned:
                self.values.append(None)


@pytest.mark.slow
def test_the_documented_loop_reports_and_prunes(tmp_path, monkeypatch):
    pruners = SimpleNamespace(MedianPruner=lambda: None)
    stub = {"TrialPruned": TrialPruned, "create_study": Study, "pruners": pruners}
    monkeypatch.setitem(sys.modules, "optuna", SimpleNamespace(**stub))
    monkeypatch.chdir(tmp_path)
    page = pages.blocks(ROOT / "docs" / "comparing.md")
    (block,) = (each for each in page if each.language == "py")
    names = {"Experiment": Experiment, "run": run}
    exec(compile(block.code, block.place, "exec"), names)
    first, second = names["study"].trials
    assert [list(trial.reports) for trial in (first, second)] == [
        [5, 10, 15, 20],
        [5, 10],
    ]
    assert names["study"].values == [first.reports[20], None]
