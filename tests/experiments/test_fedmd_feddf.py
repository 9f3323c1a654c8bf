"""The federations of FedMD's and FedDF's studies: who has which examples."""

from itertools import chain

import numpy as np
import pytest

from pfljax import data


@pytest.fixture
def loaded(monkeypatch):
    """Pictures whose first pixel is their subclass, in place of CIFAR's."""

    def load(name, *, every=1, labels="fine"):
        index = np.arange(6000)
        fine = index % 100 if name == "cifar100_20k" else index % 10
        official = (index // 100 % 5 == 4).astype(np.uint8)
        x = np.zeros((6000, 4, 4, 3), np.uint8)
        x[:, 0, 0, 0] = fine
        x[:, 0, 0, 1] = index // 100
        x[:, 0, 0, 2] = index % 100
        y = fine // 5 if labels == "coarse" else fine
        arrays = data.from_arrays(x, y, official=official, name=name)
        return arrays._replace(
            x=x[::every], y=arrays.y[::every], official=official[::every]
        )

    monkeypatch.setattr(data, "load", load)


def examples_of(federation, part, client):
    """The examples of this client, each as one number."""
    offset, size = part.offset[client], part.size[client]
    pixels = part.examples.x[offset : offset + size, 0, 0]
    return (100 * pixels[:, 1].astype(int) + pixels[:, 2]).tolist()


def examples_of_all(federation):
    """The examples that the clients train on."""
    part = federation.train
    every = range(len(part.size))
    return list(chain.from_iterable(examples_of(federation, part, k) for k in every))


@pytest.mark.parametrize("name", ["iid", "non-iid"])
def test_parties_of_fedmd_share_no_row_and_are_evaluated_alike(study, loaded, name):
    fedmd = study("fedmd_cifar")
    problem = fedmd.PROBLEMS[name]
    made = fedmd.federation(problem, 3, pooled=False, seed=0)
    everybody = examples_of_all(made)
    assert len(set(everybody)) == len(everybody) == 10 * 6 * problem.rows
    assert made.num_classes == 16
    labels = made.train.examples.y[made.train.offset[0] :][: made.train.size[0]]
    assert np.unique(labels).tolist() == [10, 11, 12, 13, 14, 15]
    tests = [examples_of(made, made.test, k) for k in range(10)]
    assert all(test == tests[0] for test in tests)
    subclasses = {row % 100 for row in everybody[: 6 * problem.rows]}
    assert len(subclasses) == 6
    tested = {row % 100 for row in tests[0]}
    # Of a superclass a party has one subclass of five; it is tested on all.
    assert len(tested) == (30 if name == "non-iid" else 6)
    assert not set(everybody) & set(tests[0])
    assert made.public.examples.y.max() == 9


def test_pooled_parties_have_the_examples_of_all(study, loaded):
    fedmd = study("fedmd_cifar")
    problem = fedmd.PROBLEMS["iid"]
    alone = fedmd.federation(problem, 3, pooled=False, seed=3)
    pooled = fedmd.federation(problem, 3, pooled=True, seed=3)
    everybody = examples_of_all(alone)
    for party in (0, 9):
        assert sorted(examples_of(pooled, pooled.train, party)) == sorted(everybody)


@pytest.mark.parametrize("kind", ["CIFAR-100", "CIFAR-10", "noise"])
def test_server_of_feddf_has_as_many_examples_of_any_kind_without_labels(
    study, loaded, kind
):
    feddf = study("feddf_unlabelled")
    made = feddf.federation(1, 1.0, kind, seed=0)
    public = made.public
    assert len(public.examples.x) == len(public.examples.y) == int(public.size) == 960
    assert not public.examples.y.any()
    first = public.examples.x[:, 0, 0, 0]
    kinds = {"CIFAR-100": 100, "CIFAR-10": 10, "noise": 256}
    assert first.max() < kinds[kind]
    assert len(np.unique(first)) > 0.9 * kinds[kind]
    # No client has an example of the server's.
    clients = examples_of_all(made)
    of_server = examples_of(made, made.public._replace(offset=[0], size=[960]), 0)
    if kind == "CIFAR-10":
        assert not set(clients) & set(of_server)


def test_cases_of_the_studies_differ_in_what_they_say(study):
    """FedAvg has no step at the server, parties alone digest nothing."""
    cells = {(c.column, c.method): c for c in study("fedmd_cifar").cells(True, None)}
    alone = cells["iid", "alone"].experiment.algorithm.args
    fedmd = cells["iid", "FedMD"].experiment.algorithm.options
    assert dict(alone) == {**fedmd, "digest_epochs": 0}
    assert cells["iid", "pooled"].federation.keywords == {}
    for cell in study("feddf_unlabelled").cells(True, None):
        steps = cell.experiment.algorithm.options["server_steps"]
        assert (steps == 0) == (cell.method == "FedAvg")
