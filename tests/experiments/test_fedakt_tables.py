"""Tables of FedAKT and FedTGP: figures, margins, and the experiments behind them."""

import numpy as np
import pytest

from pfljax import Experiment
from pfljax.simulate import architectures

ACCURACY = "personal/test/accuracy"


def result(swept, accuracy, size, seed=0):
    """A run of these accuracies [T, C]; a client without test examples has NaN."""
    accuracy = np.array(accuracy, float)
    rounds = np.arange(1, len(accuracy) + 1)
    sizes = {"test": np.array(size)}
    metrics = {ACCURACY: accuracy}
    return swept.Result({"seed": seed}, rounds, np.zeros(1), metrics, {}, sizes)


def test_pooled_weighs_by_examples_and_the_best_round_is_of_the_pooled(study):
    best_round = study("shared.best_round")
    first = result(best_round, [[1.0, 0.0, np.nan], [0.0, 0.5, np.nan]], [10, 30, 0])
    assert best_round.pooled(first).tolist() == [25.0, 37.5]
    assert best_round.mean_over_clients(first).tolist() == [50.0, 25.0]
    accuracy = [[0.0, 1.0, np.nan], [1.0, 0.0, np.nan]]
    second = result(best_round, accuracy, [10, 30, 0], seed=1)
    runs = best_round.Sweep(Experiment(), {"seed": [0, 1]}, [first, second])
    row = best_round.row_of("c", "m", runs)
    assert row.best_acc_pooled == (37.5 + 75) / 2
    assert row.best_std == pytest.approx(np.std([37.5, 75], ddof=1))
    assert row.best_acc_mean == 50
    assert row.final_acc_pooled == (37.5 + 25) / 2
    assert row.best_round == 1.5


def test_margin_is_over_the_best_of_the_others(study):
    best_round = study("shared.best_round")
    fields = dict.fromkeys(best_round.Row._fields, 0)
    rows = [
        best_round.Row(**{**fields, "method": name, "best_acc_pooled": value})
        for name, value in {"a": 3.0, "b": 5.0, "c": 4.0}.items()
    ]
    assert best_round.margin(rows, "b") == 1
    assert best_round.margin(rows, "c") == -1
    assert best_round.margin(rows, "d") is None
    assert best_round.margin(rows[:1], "a") is None


@pytest.mark.slow
@pytest.mark.parametrize("small", [True, False])
def test_smallest_model_is_the_fourth_and_heads_are_equal_where_shared(study, small):
    protocol, cost = study("protocol"), study("cost")
    names = protocol.models("htcnn_akt", equal_heads=False, small=small)
    sizes = [sum(cost.parts(name, 10)) for name in names]
    assert np.argmin(sizes) == 3
    equal = protocol.models("htcnn_akt", equal_heads=True, small=small)
    heads = {cost.parts(name, 10)[1] for name in equal}
    assert len(heads) == 1


def test_every_cell_is_an_experiment_of_its_models(study):
    protocol = study("protocol")
    scripts = ["table3", "table4", "table5", "fig7", "fig8", "fig9"]
    scripts += ["fedtgp_table1", "fedtgp_table2"]
    for name in scripts:
        columns = study(name).COLUMNS
        names = [column.name for column in columns]
        assert len(set(names)) == len(names)
        for cell in protocol.cells_of(columns, ["FedAKT"], True, None):
            assert len(architectures.list_models(cell.experiment)) >= 2
            assert cell.experiment.dataset.options["every"] >= 1


def test_published_accuracies_are_read_by_column(study):
    tgp = study("tgp")
    numbers = tgp.published(1, "dirichlet_0.1", "cifar10", "HtFE8")
    assert numbers["FedTGP"] == 88.15
    assert set(numbers) == set(tgp.ROWS)
    assert all(len(column) == 7 for column in study("fedtgp_table2").NUMBERS.values())
