"""The study of selections: every choice can be run, and what its table says."""

import numpy as np
import pytest

from pfljax.runs import checks


@pytest.fixture
def selections(study):
    return study("selections")


def test_every_choice_can_be_run(selections, tmp_path):
    trace = tmp_path / "trace.npz"
    selections.write_trace(trace, selections.SMALL.clients)
    for panel, choices in selections.PANELS.items():
        for choice in choices:
            job = selections.settings_of(choice, panel, selections.SMALL, trace)
            checks.check(job)
            assert job.epochs == (10 if panel == "work" else 5), panel


def test_either_half_of_the_clients_is_there_and_then_the_other(selections, tmp_path):
    trace = tmp_path / "new" / "trace.npz"
    selections.write_trace(trace, 6)
    there = np.load(trace)["available"]
    assert there.shape == (2 * selections.AWAY, 6)
    first, last = there[0].tolist(), there[-1].tolist()
    assert (first, last) == ([True] * 3 + [False] * 3, [False] * 3 + [True] * 3)
