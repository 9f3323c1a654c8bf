"""Patience stops a run after so many evaluations without a better one."""

from types import SimpleNamespace

import numpy as np
import pytest

from pfljax import Experiment
from pfljax.simulate import stopping


@pytest.mark.parametrize(
    ("monitor", "means", "stops"),
    [
        ("accuracy", [0.5, 0.6, 0.6], False),
        ("accuracy", [0.5, 0.6, 0.6, 0.5], True),
        ("accuracy", [0.5, 0.6, 0.6, 0.7], False),
        ("loss", [0.5, 0.4, 0.4, 0.5], True),
        ("loss", [0.5, 0.6, 0.4, np.nan], False),
        ("loss", [0.5, 0.6, np.nan], True),
    ],
)
def test_evaluations_since_the_first_best_one(monkeypatch, monitor, means, stops):
    monkeypatch.setattr(stopping.results, "arrays", lambda run, state: {})
    monkeypatch.setattr(
        stopping.evaluation, "on_validation", lambda arrays, watched: np.array(means)
    )
    run = SimpleNamespace(experiment=Experiment(patience=2, monitor=monitor))
    found = stopping.check_patience(run, None, len(means))
    assert (found is not None) == stops
