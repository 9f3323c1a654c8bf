"""The study of attackers: its clients, its combinations, and its table."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from pfljax import Experiment
from pfljax.simulate import channels, malicious


@pytest.fixture
def attackers(study):
    return study("attackers")


def run_of(accuracy, seed=0, loss=None, **more):
    """A record of [T, C] accuracies of the personal models."""
    accuracy = np.asarray(accuracy, float)
    arrays = {
        "personal/test/accuracy": accuracy,
        "personal/test/loss": accuracy if loss is None else np.asarray(loss, float),
        "test_size": np.ones(accuracy.shape[1], int),
    }
    return SimpleNamespace(clients=arrays | more, experiment=Experiment(seed=seed))


def test_the_same_clients_are_malicious_whatever_the_attack(attackers):
    shares = set()
    for method, attack, reducer in attackers.cells():
        experiment = attackers.settings_of(method, attack, reducer, attackers.SMALL)
        assert experiment.algorithm.name == method
        through = channels.make_channel(experiment, 20)
        noise = experiment.noise.options.get("attackers", 0)
        shares |= {noise, through.attackers if through else 0}
    assert shares == {0, attackers.SHARE}


def test_every_method_meets_every_attack_behind_every_reducer(attackers):
    crossed = [cell for cell in attackers.cells() if cell[0] in attackers.METHODS]
    assert len(set(crossed)) == 3 * 4 * 4
    experiment = attackers.settings_of(
        "ditto", "replacement", "median", attackers.SMALL
    )
    participation = experiment
    assert [choice.name for choice in participation.channel] == ["model_replacement"]
    assert [choice.name for choice in participation.aggregation] == ["median"]
    assert experiment.noise.name == "poison"


def test_benign_clients_are_those_that_are_not_recorded_as_malicious(attackers):
    bad = np.array([True, False, False])
    run = run_of([[0.9, 0.2, 0.4]] * 2 + [[0.9, 0.5, 0.7]] * 3, malicious=bad)
    # The last three evaluations, of the last two clients.
    np.testing.assert_allclose(attackers.by_client(run), [50, 70])
    row = attackers.row_of("ditto", "labels", "mean", [run])
    assert row.mean == pytest.approx([60])
    assert row.std == pytest.approx([10])
    assert row.tenth == pytest.approx([52])


def test_without_an_attack_the_same_clients_are_evaluated(attackers):
    run = run_of(np.zeros((1, 20)), seed=3)
    attacked = attackers.settings_of("fedavg", "sign flip", "mean", attackers.SMALL)
    through = channels.make_channel(attacked, 20)
    clients: Any = SimpleNamespace(num_clients=20, manifest={}, num_classes=10)
    groups = malicious.groups(malicious.which(through, clients, jax.random.key(3)))
    np.testing.assert_array_equal(
        np.flatnonzero(attackers.benign(run)), groups[malicious.BENIGN]
    )
    assert len(groups[malicious.BENIGN]) == 16
