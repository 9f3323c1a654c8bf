"""Tests of paired differences, by hand and against SciPy's own."""

import numpy as np
import pytest
from scipy import stats

from pfljax.evaluation import significance
from pfljax.evaluation.significance import Pair, estimate

SEEDS = np.array([0.031, 0.024, 0.041, -0.008, 0.029])


def clients(seeds, count=20, shared=0.0, seed=0, mean=0.02):
    """Differences f64[seeds, count] whose seeds share a part of their error."""
    generator = np.random.default_rng(seed)
    means = mean + shared * generator.normal(size=(seeds, 1))
    return generator.normal(means, 0.1, (seeds, count))


def pair_of(d, same_clients=False):
    return Pair(d.mean(axis=1), tuple(d), same_clients)


def test_five_seeds_are_tested_by_scipys_t():
    a = np.array([0.9, 0.8, 0.85, 0.7, 0.95])
    (got,) = estimate([Pair(SEEDS, tuple(clients(5)))])
    expected = stats.ttest_rel(a + SEEDS, a)
    assert got.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval()
    assert (got.low, got.high) == pytest.approx((interval.low, interval.high))
    assert got.difference == pytest.approx(SEEDS.mean())


@pytest.mark.parametrize("seeds", [1, 2, 3, 4])
@pytest.mark.parametrize("same", [False, True])
def test_few_seeds_are_tested_by_the_moderated_t_by_hand(seeds, same):
    two = [clients(seeds, seed=1), clients(seeds, shared=0.2, seed=2, mean=0.1)]
    u, s2 = [], []
    for d in two:
        s2.append(d.mean(axis=1).var(ddof=1) if seeds > 1 else 0.0)
        if same and seeds > 1:
            rest = d - d.mean(0) - d.mean(1)[:, None] + d.mean()
            u.append((rest**2).sum() / (19 * (seeds - 1)) / 20)
        else:
            u.append((d.var(axis=1, ddof=1) / 20).mean())
    ratio = np.mean(np.divide(s2, u)) if seeds > 1 else 0.0
    r = max(1 + 20 / 20, ratio)
    for got, d, u_, s2_ in zip(
        estimate([pair_of(d, same) for d in two]), two, u, s2, strict=True
    ):
        v = (4 * r * u_ + (seeds - 1) * s2_) / (4 + seeds - 1)
        t = d.mean() / np.sqrt(v / seeds)
        p = 2 * stats.t.sf(abs(t), 4 + seeds - 1)
        assert got.p == pytest.approx(p)
        # The interval and p agree.
        half = stats.t.ppf(0.975, 4 + seeds - 1) * np.sqrt(v / seeds)
        ends = (d.mean() - half, d.mean() + half)
        assert (got.low, got.high) == pytest.approx(ends)


def test_without_clients_few_seeds_are_tested_by_t():
    (got,) = estimate([Pair(SEEDS[:3])])
    assert got.p == pytest.approx(stats.ttest_1samp(SEEDS[:3], 0).pvalue)
    ties = tuple(np.full(4, mean) for mean in SEEDS[:3])
    assert estimate([Pair(SEEDS[:3], ties)])[0].p == pytest.approx(got.p)


@pytest.mark.parametrize(
    ("means", "p"), [([0, 0, 0], 1), ([0.1, 0.1, 0.1], 0.25), ([0.1], np.nan), ([0], 1)]
)
def test_without_a_spread_signs_alone_are_asked(means, p):
    (got,) = estimate([Pair(np.array(means, float))])
    np.testing.assert_equal(got.p, p)


def test_false_positives_of_simulated_clients_are_rare():
    """Clients explain all, or seeds share as much as was measured on real runs."""
    for shared in (0.0, 0.1 / np.sqrt(20)):
        p = [
            estimate([pair_of(clients(2, 20, shared, seed, mean=0.0))])[0].p
            for seed in range(400)
        ]
        assert np.mean(np.array(p) < 0.05) < 0.05


@pytest.mark.parametrize(("seeds", "shared"), [(2, 0.0), (3, 0.02), (5, 0.03)])
def test_the_interval_covers_a_known_mean(seeds, shared):
    covered = []
    for seed in range(200):
        (got,) = estimate([pair_of(clients(seeds, 20, shared, seed))])
        covered.append(got.low <= 0.02 <= got.high)
    assert np.mean(covered) >= 0.9


def test_seeds_needed_by_hand():
    (got,) = estimate([Pair(SEEDS)])
    for comparisons in (1, 4):
        needed = significance.seeds_needed(got, comparisons)

        def finds(n, comparisons=comparisons):
            t = got.difference / np.sqrt(got.variance / n)
            level = stats.t.ppf(1 - 0.05 / (2 * comparisons), n - 1)
            return t >= level + stats.t.ppf(0.8, n - 1)

        assert needed is not None
        assert finds(needed)
        assert needed == 5 or not finds(needed - 1)
    assert significance.seeds_needed(got._replace(difference=1e-5), 1) is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("difference", "needed"), [(0.0, None), (0.1, 5)])
def test_seeds_that_agree_exactly_divide_nothing_by_zero(difference, needed):
    (got,) = estimate([Pair(np.full(2, difference))])
    assert got.variance == 0
    assert significance.seeds_needed(got, 1) == needed


def test_signed_ranks_are_scipys():
    expected = stats.wilcoxon(SEEDS, method="exact").pvalue
    assert significance.signed_rank(SEEDS) == pytest.approx(expected)
    assert significance.signed_rank(np.arange(1.0, 6)) == 0.0625
    assert significance.signed_rank(np.array([0, np.nan])) == 1
    # Ties of float32 are ties: 2/3 - 1/3 and 1/3.
    thirds = np.array([2 / 3, 1 / 3, 1 / 3], np.float32)
    values = np.array([thirds[0] - thirds[1], -thirds[2], 0.9])
    tied = stats.wilcoxon([1.0, -1, 3], method="asymptotic").pvalue
    assert significance.signed_rank(values) == pytest.approx(tied)


def test_holm_by_hand():
    p = np.array([0.04, 0.01, np.nan, 0.03, 0.9])
    # 0.01 * 4; 0.03 * 3; 0.04 * 2, not below the one before; 0.9 * 1
    expected = [0.09, 0.04, np.nan, 0.09, 0.9]
    np.testing.assert_allclose(significance.holm(p), expected)
    np.testing.assert_array_equal(significance.holm(np.array([0.7, 0.6])), [1, 1])


def test_who_gains_and_who_loses():
    differences = np.array([0.1, 0.0, -0.1, 0.2, 1e-8])
    assert significance.win_tie_loss(differences) == (2, 2, 1)
