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
    known = {"accuracy": np.ones(len(means)), "loss": np.ones(len(means))}
    arrays = {
        f"personal/validation/{name}": np.array(values)[:, None]
        for name, values in (known | {monitor: means}).items()
    }
    monkeypatch.setattr(stopping.results, "arrays", lambda run, state: arrays)
    run = SimpleNamespace(experiment=Experiment(patience=2, monitor=monitor))
    found = stopping.check_patience(run, None, len(means))
    assert (found is not None) == stops
