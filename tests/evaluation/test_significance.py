"""Tests of differences in pairs, by hand and against SciPy's own."""

import itertools

import numpy as np
import pytest
from scipy import stats

from pfljax.evaluation import bootstrap, significance

SEEDS = np.array([0.031, 0.024, 0.041, -0.008, 0.029])


def enumerated(sums):
    """Two-sided p of a sum of signed ranks, over all signs."""
    totals = [
        np.dot(s, np.abs(sums)) for s in itertools.product([1, -1], repeat=len(sums))
    ]
    return np.mean(np.abs(totals) >= abs(np.sum(sums)))


def test_student_in_pairs_is_scipys():
    a = np.array([0.9, 0.8, 0.85, 0.7, 0.95])
    expected = stats.ttest_rel(a + SEEDS, a).pvalue
    assert significance.paired_t(SEEDS) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("means", "p"), [([0, 0, 0], 1), ([0.1, 0.1, 0.1], 0.25), ([0.1], np.nan)]
)
def test_without_a_spread_signs_alone_are_asked(means, p):
    got = significance.paired_t(np.array(means, float))
    np.testing.assert_equal(got, p)


def test_signed_ranks_of_seeds_are_scipys():
    expected = stats.wilcoxon(SEEDS, method="exact").pvalue
    assert significance.signed_rank(SEEDS) == pytest.approx(expected)
    assert significance.signed_rank(SEEDS) == enumerated([4, 2, 5, -1, 3])


def test_five_seeds_cannot_go_below_one_in_sixteen():
    p = significance.signed_rank(np.array([1, 2, 3, 4, 5.0]))
    assert p == 0.0625 == significance.least_p(5)


def test_many_signed_ranks_are_near_normal():
    values = np.random.default_rng(0).normal(0.3, 1, 60)
    values[:4] = 0.5, -0.5, 0.5, 0  # ties and none
    told = values[values != 0]
    ranks = stats.rankdata(np.abs(told))
    z = np.sum(np.sign(told) * ranks) / np.sqrt(np.sum(ranks**2))
    expected = 2 * stats.norm.sf(abs(z))
    assert significance.signed_rank(values) == pytest.approx(expected, rel=1e-6)


def test_clients_within_seeds_by_enumeration():
    """Ranks of each seed by hand; a tie, a client as before and one without rows."""
    first = np.array([0.5, 0.25, -0.25, 0.0, np.nan])  # ranks 3, 1.5, -1.5, 0, 0
    second = np.array([0.1, 0.3, 0.2, -0.4, np.nan])  # ranks 1, 3, 2, -4, 0
    by_client = [3 + 1, 1.5 + 3, -1.5 + 2, -4]
    apart = [3, 1.5, -1.5, 1, 3, 2, -4]
    p = significance.clustered_signed_rank([first, second], same_clients=True)
    assert p == enumerated(by_client)
    p = significance.clustered_signed_rank([first, second], same_clients=False)
    assert p == enumerated(apart)


def test_ties_of_float32_are_ties():
    thirds = np.array([2 / 3, 1 / 3, 1 / 3], np.float32)
    values = np.array([thirds[0] - thirds[1], -thirds[2], 0.9])
    np.testing.assert_array_equal(significance._signed_ranks(values), [1.5, -1.5, 3])


def test_holm_by_hand():
    p = np.array([0.04, 0.01, np.nan, 0.03, 0.9])
    # .01 * 4; .03 * 3; .04 * 2, not below the one before; .9 * 1
    expected = [0.09, 0.04, np.nan, 0.09, 0.9]
    np.testing.assert_allclose(significance.holm(p), expected)
    np.testing.assert_array_equal(significance.holm(np.array([0.7, 0.6])), [1, 1])


@pytest.mark.parametrize(
    ("n", "C", "of_seeds"),
    [(3, 20, 0.03), (5, 20, 0.0), (5, 20, 0.03), (5, 300, 0.03), (1, 40, 0.0)],
)
def test_the_interval_covers_a_known_mean(n, C, of_seeds, monkeypatch):
    """In 95 of 100 simulations, whether clients differ more or seeds."""
    monkeypatch.setattr(bootstrap, "DRAWS", 400)
    generator = np.random.default_rng(1)
    covered = []
    for _ in range(200):
        means = 0.02 + of_seeds * generator.normal(size=n)
        clients = [generator.normal(mean, 0.1, C) for mean in means]
        low, high = bootstrap.interval(clients)
        covered.append(low <= 0.02 <= high)
    assert 0.9 <= np.mean(covered) <= 0.99


def test_the_interval_is_as_wide_as_students():
    low, high = bootstrap.interval([mean[None] for mean in SEEDS])
    half = stats.t.ppf(0.975, 4) * SEEDS.std(ddof=1) / np.sqrt(5)
    assert high - low == pytest.approx(2 * half)
    # The least seed lies far below the others, and so does the lower end.
    assert SEEDS.mean() - low > high - SEEDS.mean()
    assert (low, high) == bootstrap.interval([mean[None] for mean in SEEDS])


def test_who_gains_and_who_loses():
    differences = [np.array([0.1, 0.0, -0.1]), np.array([0.2, 1e-8])]
    assert significance.win_tie_loss(differences) == (2, 2, 1)
