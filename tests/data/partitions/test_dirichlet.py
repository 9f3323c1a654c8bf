"""The Dirichlet partitions: their laws, and how skewed they are beside each other."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pfljax.data import load
from pfljax.data.partitions.dirichlet import (
    dirichlet,
    dirichlet_over_classes_at_once,
    dirichlet_over_classes_by_client,
)

BALANCED = np.repeat(np.arange(10), 600)
OVER_CLASSES = [dirichlet_over_classes_at_once, dirichlet_over_classes_by_client]


def histogram(labels, dealt):
    """i64[C, K], how many examples of each class every client has."""
    num_classes = int(labels.max()) + 1
    examples_of_client = np.split(dealt.order, dealt.offset[1:])
    counts = [
        np.bincount(labels[own], minlength=num_classes) for own in examples_of_client
    ]
    return np.stack(counts)


def largest_class(labels, dealt):
    """The share of a client's largest class, averaged over clients."""
    return np.mean(np.max(histogram(labels, dealt), axis=1) / dealt.size)


def row_by_row(labels, num_clients, alpha, rng):
    """Hsu et al.'s procedure, one example at a time: counts i64[C, K]."""
    left = np.bincount(labels)
    counts = np.zeros((num_clients, len(left)), int)
    mixtures = rng.dirichlet(alpha * left / len(labels), size=num_clients)
    for client, mixture in enumerate(mixtures):
        for _ in range(len(labels) // num_clients):
            odds = mixture * (left > 0)
            label = rng.choice(len(left), p=odds / odds.sum())
            counts[client, label] += 1
            left[label] -= 1
    return counts


def test_by_client_has_the_law_of_examples_taken_one_by_one():
    """Three clients compete for seven examples of three classes: most draws run out."""
    labels = np.array([0, 0, 0, 1, 1, 2])
    draws = 2000
    rng = np.random.default_rng(0)
    expected = Counter(row_by_row(labels, 3, 2.0, rng).tobytes() for _ in range(draws))
    counted = Counter(
        histogram(
            labels, dirichlet_over_classes_by_client(labels, 3, seed, alpha=2.0)
        ).tobytes()
        for seed in range(draws)
    )
    assert set(counted) == set(expected)
    distance = sum(abs(counted[table] - expected[table]) for table in expected) / draws
    assert distance < 0.15  # two samples of one law are about .1 apart


@settings(max_examples=60, deadline=None)
@given(
    rows_of_class=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    clients=st.integers(1, 12),
    alpha=st.sampled_from([1e-300, 1e-3, 0.1, 1.0, 1e4]),
    seed=st.integers(0, 1000),
)
@pytest.mark.parametrize("deal", OVER_CLASSES)
def test_over_classes_deals_every_row_once_in_equal_sizes(
    deal, rows_of_class, clients, alpha, seed
):
    labels = np.repeat(np.arange(len(rows_of_class)), rows_of_class)
    labels = np.pad(labels, (0, max(0, clients - len(labels))))
    dealt = deal(labels, clients, seed, alpha=alpha)
    np.testing.assert_array_equal(np.sort(dealt.order), np.arange(len(labels)))
    assert np.ptp(dealt.size) <= 1
    again = deal(labels, clients, seed, alpha=alpha)
    np.testing.assert_array_equal(dealt.order, again.order)


@pytest.mark.parametrize(
    ("alpha", "by_client", "at_once"),
    [(0.1, 0.92, 0.73), (0.5, 0.76, 0.62), (1.0, 0.65, 0.56)],
)
def test_share_of_the_largest_class_on_the_digits(alpha, by_client, at_once):
    """The figures in the docstring of `dirichlet_over_classes_by_client`."""
    labels = load("digits").y
    for deal, share in (
        (dirichlet_over_classes_by_client, by_client),
        (dirichlet_over_classes_at_once, at_once),
    ):
        measured = [
            largest_class(labels, deal(labels, 20, seed, alpha=alpha))
            for seed in range(20)
        ]
        assert np.mean(measured) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("alpha", [0.5, 10.0, 1000.0])
def test_at_once_has_the_moments_of_its_law(alpha):
    """q ~ Dir(alpha / K), then 100 labels of q; each class is used up exactly."""
    dealt = dirichlet_over_classes_at_once(BALANCED, 60, 0, alpha=alpha)
    share = histogram(BALANCED, dealt) / 100
    np.testing.assert_allclose(share.sum(axis=0), 6)
    expected = 0.1 * 0.9 * (1 / (alpha + 1) + (1 - 1 / (alpha + 1)) / 100)
    assert np.var(share) == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize("alpha", [0.1, 1.0, 100.0])
def test_over_clients_has_the_moments_of_its_law(alpha):
    clients = 20
    tables = [
        histogram(
            BALANCED,
            dirichlet(BALANCED, clients, seed, alpha=alpha, min_size=0),
        )
        for seed in range(40)
    ]
    share = np.stack(tables) / 600
    np.testing.assert_allclose(share.sum(axis=1), 1)
    mean = 1 / clients
    variance = mean * (1 - mean) / (clients * alpha + 1)
    assert np.var(share) == pytest.approx(variance, rel=0.15, abs=1e-6)


@pytest.mark.parametrize("deal", OVER_CLASSES)
def test_over_clients_and_over_classes_differ_in_sizes(deal):
    over_clients = dirichlet(BALANCED, 50, 0, alpha=0.3)
    assert np.ptp(over_clients.size) > 50
    assert np.ptp(deal(BALANCED, 50, 0, alpha=0.3).size) <= 1


def test_balance_caps_the_largest():
    free = dirichlet(BALANCED, 20, 0, alpha=0.5)
    capped = dirichlet(BALANCED, 20, 0, alpha=0.5, balance=True)
    assert capped.size.max() < free.size.max()
    assert capped.size.std() < free.size.std()
