"""The clients of pFedVEM's studies, its form with heads by example, and its figure."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import algorithms, data
from pfljax.algorithms.bayesian.pfedvem import Upload
from pfljax.conformance import toy

ROWS = 9000


@pytest.fixture
def loaded(monkeypatch):
    """Pictures that are the numbers of their examples, in place of the data sets."""

    def load(name, *, every=1, size=None, labels="fine"):
        index = np.arange(ROWS)
        fine = index % 100 if name == "cifar100_20k" else index % 10
        x = np.stack([index // 256, index % 256], 1).astype(np.uint8)[:, None, :, None]
        y = fine // 5 if labels == "coarse" else fine
        official = (index // 100 % 6 == 5).astype(np.uint8)
        return data.from_arrays(x, y, official=official, name=name)

    monkeypatch.setattr(data, "load", load)


def examples_of(part, client):
    """The row numbers of this client."""
    offset, size = part.offset[client], part.size[client]
    pixels = part.examples.x[offset : offset + size, 0, :, 0].astype(int)
    return 256 * pixels[:, 0] + pixels[:, 1]


def labels_of(part, client):
    return part.examples.y[part.offset[client] :][: part.size[client]]


def test_neighbours_share_the_classes_and_no_row(study, loaded):
    vem = study("vem")
    made = vem.skewed(vem.FASHION, 51, small=True, seed=0)
    examples = [examples_of(made.train, k) for k in range(51)]
    whole = np.concatenate(examples)
    assert len(set(whole)) == len(whole) == 7500
    classes = [set(labels_of(made.train, k)) for k in range(51)]
    for k in range(0, 50, 2):
        assert len(classes[k]) == len(classes[k + 1]) == 5
        assert not classes[k] & classes[k + 1]
    # An odd number: the last one has no neighbour.
    assert len(classes[50]) == 10
    for k in (0, 7, 50):
        assert set(labels_of(made.test, k)) == classes[k]
    sizes = np.sort([len(own) for own in examples])
    assert sizes[0] >= 10
    assert sizes[-5:].mean() > 4 * sizes[:5].mean()
    other = vem.skewed(vem.FASHION, 51, small=True, seed=1)
    assert set(examples_of(other.train, 0)) != set(examples[0])


def test_of_a_superclass_a_client_has_one_subclass_and_is_tested_on_it(study, loaded):
    vem = study("vem")
    made = vem.drifted(vem.CIFAR100, 12, small=True, seed=0)
    whole = []
    for k in range(12):
        learnt, tested = examples_of(made.train, k), examples_of(made.test, k)
        assert set(labels_of(made.train, k)) == set(range(20))
        np.testing.assert_array_equal(labels_of(made.train, k), learnt % 100 // 5)
        assert len(set(learnt % 100)) == 20
        assert set(tested % 100) == set(learnt % 100)
        assert set(tested // 100 % 6) == {5}
        whole += learnt.tolist()
    # All examples are used, for 12 clients are enough for five subclasses.
    assert len(set(whole)) == len(whole) == 7500


def test_clients_differ_in_one_thing(study, loaded):
    differing = study("differing")
    kinds = {
        name: (kind.federation(True, 0), kind.measure)
        for name, kind in differing.DIFFERING.items()
    }
    sizes = {name: np.asarray(made.train.size) for name, (made, _) in kinds.items()}
    assert sizes["size"].max() > 5 * sizes["size"].min()
    assert set(sizes["noise"]) == {150}
    assert set(sizes["skew"]) == {75}
    made, measure = kinds["noise"]
    wrong = []
    for k in range(50):
        true = examples_of(made.train, k) % 10
        wrong.append(np.mean(labels_of(made.train, k) != true))
    np.testing.assert_allclose(wrong, 0.9 * measure(made), atol=0.12)
    np.testing.assert_array_equal(
        labels_of(made.test, 9), examples_of(made.test, 9) % 10
    )
    made, measure = kinds["skew"]
    np.testing.assert_array_equal(measure(made), np.arange(50) % 10 + 1)
    # Half of the examples to deal leave room: no class is used up.
    assert len(set(labels_of(made.test, 3))) == 4


def test_the_form_by_examples_weighs_heads_as_bodies(study):
    by_rows = algorithms.method(study("vem").BY_ROWS)
    local = toy.full_batch()
    methods = [by_rows(toy.quadratic(), local)]
    methods.append(algorithms.method("pfedvem")(toy.quadratic(), local))
    leaves = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    params = {"body": jnp.asarray(leaves[:, :2]), "head": jnp.asarray(leaves[:, 2:])}
    cohort = toy.cohort([1, 1, 0, 1], weight=np.float32(toy.COUNTS))
    weight = toy.COUNTS * [1, 1, 0, 1]

    @functools.partial(np.vectorize, signature="()->(n)", excluded={1})
    def aggregated(scale, method):
        tau = scale * jnp.asarray([1.0, 2, 3, 4])
        return toy.flat(method.aggregate(None, Upload(params, tau), cohort))

    expected = np.average(leaves, axis=0, weights=weight)
    np.testing.assert_allclose(aggregated(1.0, methods[0]), expected, rtol=1e-5)
    by_confidence = aggregated(1.0, methods[1])
    np.testing.assert_allclose(by_confidence[:2], expected[:2], rtol=1e-5)
    assert abs(by_confidence[2] - expected[2]) > 1e-3


def test_every_table_has_each_number_of_clients(study):
    for name, columns in (("table1", 6), ("table2", 3)):
        table = study(name)
        for small in (True, False):
            cells = table.cells(small, None)
            assert len({cell.column for cell in cells}) == columns
            assert len(cells) == columns * 7
    notes = study("table1").note("cifar10, 50 clients", [])
    assert "pFedVEM 73.2" in notes


def test_the_table_of_uncertainty_has_means_over_seeds(study):
    uncertainty = study("uncertainty")
    record = {"split": "test", "clients": "all", "finetune": 0}
    of_clients = {name: {"mean": 0.5} for name in uncertainty.METRICS}
    others = {name: {"mean": 9.0} for name in uncertainty.METRICS}
    server = record | {"model": "server", "metrics": others}
    personal = record | {"model": "personal", "metrics": of_clients}
    held_out = personal | {"clients": "unseen", "metrics": others}
    last = {"evaluations": [server, personal, held_out]}
    first = uncertainty.means(uncertainty.used_metrics({"last": last}))
    assert first == [0.5] * 6
    row = uncertainty.row_of("FedAvg", 3, [first, [0.7, 1.5, 0.3, 0.1, 0.9, 0.8]])
    assert (row.accuracy, row.loss, row.auroc) == pytest.approx((60, 1, 0.65))
    assert row.accuracy_std == pytest.approx(100 * 0.2 / 2**0.5)
    assert "| FedAvg | 60.00 ± 14.14 | 1.000 |" in uncertainty.markdown([row])
    # Of a method without personal models all use the server's.
    alone = {"last": {"evaluations": [server]}}
    assert uncertainty.means(uncertainty.used_metrics(alone)) == [9.0] * 6
