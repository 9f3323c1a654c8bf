"""PFLlib's partitions: their stream of numbers, and what follows from their rule."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pfljax.data.partitions.pfllib import pfllib_dirichlet, pfllib_pathological

CIFAR10 = np.tile(np.arange(10), 6000)


def examples_of(dealt):
    """The examples of every client."""
    return np.split(dealt.order, dealt.offset[1:])


def class_sets(labels, dealt):
    """The classes of every client, as tuples."""
    return [tuple(np.unique(labels[own]).tolist()) for own in examples_of(dealt)]


def pathological_by_lists(labels, clients, per_client):
    """PFLlib's rule with lists: the examples of every client, from stream 1."""
    rng = np.random.RandomState(1)
    num_classes = labels.max() + 1
    least = int(min(40, len(labels) / clients / 2))
    wanted = [per_client] * clients
    examples = [[] for _ in range(clients)]
    for label in range(num_classes):
        chosen = [k for k in range(clients) if wanted[k] > 0]
        chosen = chosen[: math.ceil(clients / num_classes * per_client)]
        left = np.flatnonzero(labels == label).tolist()
        share = len(left) / len(chosen)
        low = max(share / 10, least / num_classes)
        sizes = rng.randint(int(low), int(share), len(chosen) - 1).tolist()
        for k, size in zip(chosen, [*sizes, len(left) - sum(sizes)], strict=True):
            examples[k] += left[:size]
            left = left[size:]
            wanted[k] -= 1
    return examples


def dirichlet_by_lists(labels, clients, alpha):
    """PFLlib's rule with lists: the examples of every client, from stream 1."""
    rng = np.random.RandomState(1)
    least = int(min(40, len(labels) / clients / 2))
    examples = [[]]
    while min(map(len, examples)) < least:
        examples = [[] for _ in range(clients)]
        for label in range(labels.max() + 1):
            of_class = np.flatnonzero(labels == label)
            rng.shuffle(of_class)
            share = rng.dirichlet(np.repeat(alpha, clients))
            full = len(labels) / clients
            share = share * [len(own) < full for own in examples]
            cuts = (np.cumsum(share / share.sum()) * len(of_class)).astype(int)[:-1]
            for own, part in zip(examples, np.split(of_class, cuts), strict=True):
                own += part.tolist()
    return examples


@pytest.mark.parametrize(("clients", "per_client"), [(20, 2), (10, 3), (50, 2)])
def test_pathological_is_the_rule_number_by_number(clients, per_client):
    dealt = pfllib_pathological(CIFAR10, clients, 7, per_client=per_client)
    expected = pathological_by_lists(CIFAR10, clients, per_client)
    for examples, wanted in zip(examples_of(dealt), expected, strict=True):
        assert examples.tolist() == sorted(wanted)


@pytest.mark.parametrize(("clients", "alpha"), [(20, 0.1), (20, 0.5), (100, 0.1)])
def test_dirichlet_is_the_rule_number_by_number(clients, alpha):
    dealt = pfllib_dirichlet(CIFAR10, clients, 7, alpha=alpha)
    expected = dirichlet_by_lists(CIFAR10, clients, alpha)
    for examples, wanted in zip(examples_of(dealt), expected, strict=True):
        assert examples.tolist() == sorted(wanted)


def test_clients_of_cifar10_come_in_blocks_of_four_with_equal_classes():
    dealt = pfllib_pathological(CIFAR10, 20, 0)
    expected = [(2 * block, 2 * block + 1) for block in range(5) for _ in range(4)]
    assert class_sets(CIFAR10, dealt) == expected
    assert dealt.size.min() >= 40
    assert dealt.size.sum() == 60_000
    # 3,000 examples are an equal share: unbalanced sizes are far from it.
    assert dealt.size.min() < 1500 < 6000 < dealt.size.max()


@pytest.mark.parametrize("clients", [10, 20, 50, 100, 200])
def test_cifar100_has_ten_sets_of_ten_classes_whatever_the_clients(clients):
    labels = np.tile(np.arange(100), 600)
    dealt = pfllib_pathological(labels, clients, 0, per_client=10)
    sets = class_sets(labels, dealt)
    assert len(set(sets)) == 10
    assert sets == sorted(sets)
    assert all(sets.count(one) == clients // 10 for one in sets)


def test_balanced_clients_have_equal_sizes():
    dealt = pfllib_pathological(CIFAR10, 20, 0, balance=True)
    assert set(dealt.size.tolist()) == {3000}


def test_the_runs_seed_changes_nothing_and_the_stream_does():
    for deal in (pfllib_pathological, pfllib_dirichlet):
        first, other = deal(CIFAR10, 20, 0), deal(CIFAR10, 20, 1)
        np.testing.assert_array_equal(first.order, other.order)
        assert deal(CIFAR10, 20, 0, stream=2).size.tolist() != first.size.tolist()


@settings(max_examples=50, deadline=None)
@given(
    clients=st.integers(1, 30),
    num_classes=st.integers(1, 12),
    per_client=st.integers(1, 12),
    each=st.integers(400, 700),
)
def test_pathological_gives_each_row_once_and_no_client_too_many_classes(
    clients, num_classes, per_client, each
):
    per_client = min(per_client, num_classes)
    labels = np.repeat(np.arange(num_classes), each)
    dealt = pfllib_pathological(labels, clients, 0, per_client=per_client)
    assert len(np.unique(dealt.order)) == len(dealt.order)
    held = [len(classes) for classes in class_sets(labels, dealt)]
    assert 1 <= min(held) <= max(held) <= per_client
    # A class that was handed out is handed out whole.
    dealt_of_class = np.bincount(labels[dealt.order], minlength=num_classes)
    assert set(dealt_of_class.tolist()) <= {0, each}


@settings(max_examples=50, deadline=None)
@given(
    clients=st.integers(1, 10),
    num_classes=st.integers(3, 10),
    alpha=st.sampled_from([1.0, 10.0]),
    each=st.integers(20, 200),
)
def test_dirichlet_gives_every_row_once_and_nobody_too_few(
    clients, num_classes, alpha, each
):
    labels = np.repeat(np.arange(num_classes), max(each, clients))
    dealt = pfllib_dirichlet(labels, clients, 0, alpha=alpha, min_size=2)
    assert np.sort(dealt.order).tolist() == list(range(len(labels)))
    assert dealt.size.min() >= min(2, len(labels) // clients // 2)


def test_what_cannot_be_dealt_is_an_error():
    with pytest.raises(ValueError, match="choose fewer clients"):
        pfllib_pathological(np.tile(np.arange(10), 3), 20, 0)
    with pytest.raises(ValueError, match="choose a greater alpha"):
        pfllib_dirichlet(np.zeros(50, int), 20, 0, alpha=1e-3)
    with pytest.raises(ValueError, match="stream"):
        pfllib_dirichlet(CIFAR10, 20, 0, stream=2**32)
