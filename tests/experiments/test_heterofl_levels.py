"""HeteroFL's table: mixes, figures by level, and bytes."""

import numpy as np
import pytest

from pfljax import Experiment
from pfljax.simulate import architectures


def test_a_mix_is_a_cycle_of_levels(study):
    levels = study("heterofl_levels")
    assert levels.levels_of("e") == "e"
    assert levels.levels_of("a1-e3") == "aeee"
    for mix in levels.MIXES:
        for small in (True, False):
            experiment = levels.experiment_of("iid", mix, small)
            named = [
                choice.name[-1] for choice in architectures.list_models(experiment)
            ]
            assert "".join(named) == levels.levels_of(mix)


def test_levels_are_pooled_over_their_clients(study):
    levels = study("heterofl_levels")
    swept = levels.best_round
    size = {"test": np.array([10, 30, 10, 20])}
    # Clients 0 and 2 are of level a, 1 and 3 of e; the last of two evaluations counts.
    metrics = {
        "server/test/accuracy": np.array([[1.0] * 4, [0.5, 0.0, 0.5, 0.0]]),
        "personal/test/accuracy": np.array([[0.0] * 4, [1.0, 0.5, 0.0, 0.0]]),
    }
    result = swept.Result({"seed": 0}, np.array([1, 2]), np.zeros(2), metrics, {}, size)
    row = levels.row_of(
        "iid", "a1-e1", swept.Sweep(Experiment(), {"seed": [0]}, [result])
    )
    assert row.best_global == 100
    assert row.final_global == pytest.approx(100 * 10 / 70)
    assert row.a == 50
    assert row.e == 30
    assert np.isnan(row.b)
    assert "| a1-e1 | 14.29 | 100.00 | 50.00 |  |  |  | 30.00 |" in levels.markdown(
        [row], []
    )


@pytest.mark.slow
def test_bytes_fall_with_the_level(study):
    rows = study("heterofl_levels").bytes_of_levels(small=True)
    assert [row.level for row in rows] == list("abcde")
    for row in rows:
        classes = 4 * 10  # which of them there are
        assert row.up == 4 * row.parameters + classes
        # Statistics of the server's model are sent down with it.
        assert row.up - classes < row.down < 1.1 * row.up
        assert row.statistics_down == rows[0].down
    sent = [row.up for row in rows]
    assert sent == sorted(sent, reverse=True)
