"""The studies of relations: clusters, coins that fell, and what tables say."""

import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms._affinity import Models
from pfljax.algorithms.multi_task.fedamp import fedamp
from pfljax.conformance import toy


def test_adjusted_rand_index(study):
    """By hand, and of Hubert and Arabie's definition over all pairs."""
    relations = study("relations")

    def index(a, b):
        return relations.adjusted_rand_index(np.asarray(a), np.asarray(b))

    assert index([0, 0, 1, 1], [5, 5, 2, 2]) == 1
    assert index([0, 0, 0, 0], [1, 1, 1, 1]) == 1
    assert index([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5)
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 3, (2, 12))
    i, j = np.triu_indices(12, 1)
    in_a, in_b = a[i] == a[j], b[i] == b[j]
    by_chance = in_a.mean() * in_b.sum()
    wanted = ((in_a & in_b).sum() - by_chance) / (
        (in_a.sum() + in_b.sum()) / 2 - by_chance
    )
    assert index(a, b) == pytest.approx(wanted)
    many = [index(*rng.integers(0, 4, (2, 20))) for _ in range(300)]
    assert abs(np.mean(many)) < 0.02


def test_blocks_of_a_matrix_are_its_clusters(study):
    """Of either direction, whatever a client is to itself."""
    relations = study("relations")
    true = relations.cluster_of(20)
    assert np.bincount(true).tolist() == [5, 5, 5, 5]
    matrix = (true[:, None] == true) + np.random.default_rng(0).normal(
        size=(20, 20)
    ) / 9
    np.fill_diagonal(matrix, 100)
    found = relations.clustered(relations.symmetric(np.triu(matrix)), 4)
    assert relations.adjusted_rand_index(true, found) == 1
    nothing = relations.clustered(relations.symmetric(np.zeros((20, 20))), 4)
    assert relations.adjusted_rand_index(true, nothing) < 0.1


def test_weights_of_fedamp_are_those_by_which_it_mixes(study):
    relations = study("relations")
    models = np.random.default_rng(0).normal(size=(4, 3))
    server = Models(toy.unflat(models), jnp.asarray([1.0, 1, 0, 1]))
    weights = relations.weights_of_fedamp(server)
    assert not weights[:, 2].any()
    assert not np.diag(weights).any()
    method = fedamp(toy.quadratic(), toy.full_batch(), **relations.FEDAMP)
    for k in (0, 1, 3):
        own = 1 - weights[k].sum()
        wanted = weights[k] @ models + own * models[k]
        found = method.message(toy.turn(client_id=k), server, ())
        np.testing.assert_allclose(toy.flat(found), wanted, rtol=1e-5, atol=1e-6)
    assert affinity.has_sent(server, jnp.int32(3))


def test_clients_of_a_cluster_number_digits_alike(study):
    relations = study("relations")
    made, again = (relations.federation("digits", 20, seed) for seed in (3, 3))
    np.testing.assert_array_equal(made.train.examples.y, again.train.examples.y)
    assert made.num_clients == 20
    plain = {}
    x, y = relations.data.load("digits").x, relations.data.load("digits").y
    for row, label in zip(x, y, strict=True):
        plain[row.tobytes()] = int(label)
    true = relations.cluster_of(20)
    for k in (0, 7, 19):
        rows = slice(int(made.train.offset[k]), int(made.train.offset[k]) + 10)
        for row, label in zip(
            made.train.examples.x[rows], made.train.examples.y[rows], strict=True
        ):
            digit = plain[np.asarray(row).tobytes()]
            assert int(label) == (digit + 3 * true[k]) % 10


def test_coins_of_l2gd_take_clients_half_of_the_way(study):
    l2gd = study("l2gd_lambda")
    for lam in l2gd.LAMBDAS:
        p = l2gd.probability(lam)
        assert l2gd.RATE * lam * (1 - p) / p == pytest.approx(l2gd.PULL)


@pytest.mark.slow
def test_rounds_that_send_are_counted_by_the_coins(study, tmp_path):
    l2gd = study("l2gd_lambda")
    rows = l2gd.main(
        seeds=(0, 1),
        lambdas=(1.0,),
        rounds=12,
        out=str(tmp_path),
        results=str(tmp_path),
    )
    local, swept, fedavg = rows
    assert local.sent == [0, 0]
    assert fedavg.sent == [12, 12]
    assert all(0 <= sent <= 6 for sent in swept.sent)  # a coin 0 lies between two
    assert np.isnan(local.mean_model).all()
    assert max(fedavg.distance) == 0
    assert np.mean(local.distance) > np.mean(swept.distance) > 0
    text = (tmp_path / "results" / "l2gd_lambda_small.md").read_text()
    assert "| local training |  | 0.0 |  |" in text
    assert (tmp_path / "figures" / "l2gd_lambda_small.png").exists()
