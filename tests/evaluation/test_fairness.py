"""Fairness over clients and convergence, against closed forms, NumPy and SciPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pfljax.evaluation import fairness

ACCURACIES = st.lists(st.integers(0, 100), min_size=2, max_size=30).map(
    lambda counts: np.array(counts) / 100
)
quickly = settings(max_examples=60, deadline=None)


@pytest.mark.parametrize("N", [1, 2, 3, 100])
@pytest.mark.parametrize("level", [0.0, 0.1, 1.0])
def test_equal_clients_are_fair(N, level):
    values = fairness.figures(np.full(N, level))
    assert values["variance"] == pytest.approx(0, abs=1e-30)
    assert values["iqr"] == values["range"] == values["gini"] == 0
    assert values["jain"] == values["entropy_fairness"] == 1
    assert values["cosine_fairness"] == 1
    assert all(values[f"p{q}"] == level for q in fairness.DECILES)


@pytest.mark.parametrize("N", [2, 7, 50])
def test_one_client_with_everything(N):
    values = fairness.figures(np.eye(N)[N // 2])
    assert values["jain"] == pytest.approx(1 / N)
    assert values["entropy_fairness"] == 0
    assert values["gini"] == pytest.approx(1 - 1 / N)
    assert values["cosine_fairness"] == pytest.approx(1 / np.sqrt(N))
    assert values["variance"] == pytest.approx((N - 1) / N**2)
    assert values["range"] == 1


@quickly
@given(ACCURACIES)
def test_figures_are_their_definitions(a):
    values = fairness.figures(a)
    N = len(a)
    assert values["variance"] == pytest.approx(np.mean((a - a.mean()) ** 2))
    assert values["iqr"] == pytest.approx(stats.iqr(a))
    for q in fairness.DECILES:
        expected = stats.scoreatpercentile(a, q)
        assert values[f"p{q}"] == pytest.approx(expected), q
    if a.sum():
        apart = np.abs(a[:, None] - a[None, :]).sum()
        assert values["gini"] == pytest.approx(apart / (2 * N**2 * a.mean()))
        jain = a.sum() ** 2 / (N * (a**2).sum())
        assert values["jain"] == pytest.approx(jain)
        entropy = stats.entropy(a) / np.log(N)  # scipy makes shares of `a`
        assert values["entropy_fairness"] == pytest.approx(entropy)
        cosine = a @ np.ones(N) / (np.linalg.norm(a) * np.sqrt(N))
        assert values["cosine_fairness"] == pytest.approx(cosine)


@quickly
@given(ACCURACIES, st.integers(0, 99), st.sampled_from([0.25, 0.5, 3.0]))
def test_order_and_scale_do_not_matter(a, seed, scale):
    values = fairness.figures(a)
    shuffled = np.random.default_rng(seed).permutation(a)
    assert fairness.figures(shuffled) == pytest.approx(values, nan_ok=True)
    assert fairness.evenness(scale * a) == pytest.approx(fairness.evenness(a))


@quickly
@given(ACCURACIES)
def test_figures_keep_to_their_ranges(a):
    values = fairness.figures(a)
    N, little = len(a), 1e-12
    assert 0 <= values["gini"] <= 1 - 1 / N + little
    assert 1 / N - little <= values["jain"] <= 1 + little
    for name in ("entropy_fairness", "cosine_fairness"):
        assert -little <= values[name] <= 1 + little
    assert 0 <= values["variance"] <= 0.25 + little
    assert 0 <= values["iqr"] <= values["range"] <= 1
    deciles = [values[f"p{q}"] for q in fairness.DECILES]
    assert deciles == sorted(deciles)
    assert fairness.histogram(a).sum() == N


@quickly
@given(ACCURACIES, st.data())
def test_clients_without_examples_are_left_out(a, data):
    places = data.draw(st.lists(st.integers(0, len(a)), min_size=1, max_size=4))
    with_gaps = np.insert(a, places, np.nan)
    alone = np.linspace(0, 1, len(a))
    reference = np.insert(alone, places, np.nan)
    expected = fairness.figures(a, alone)
    assert fairness.figures(with_gaps, reference) == pytest.approx(
        expected, nan_ok=True
    )
    np.testing.assert_array_equal(fairness.histogram(with_gaps), fairness.histogram(a))


def test_no_clients_no_figures():
    values = fairness.figures(np.array([np.nan]), np.array([0.5]), np.array([0.5]))
    assert np.isnan(list(values.values())).all()
    assert fairness.histogram(np.array([np.nan])).sum() == 0


def test_gains_and_who_is_hurt_by_hand():
    a = np.array([0.5, 0.6, 0.7, np.nan])
    alone = np.array([0.6, 0.5, np.nan, 0.9])
    before = np.array([0.2, 0.6, 0.9, 0.1])
    values = fairness.figures(a, alone, before)
    assert values["gain_local"] == pytest.approx(0)
    assert values["worse_than_local"] == 1 / 2
    assert values["gain_server"] == pytest.approx((0.3 + 0 - 0.2) / 3)
    assert values["worse_than_server"] == 1 / 3
    without = fairness.figures(a)
    assert np.isnan([without["gain_local"], without["worse_than_server"]]).all()


def test_bins_of_shares_of_examples_do_not_depend_on_rounding():
    a = np.arange(21, dtype=np.float32) / 20
    expected = np.ones(20, int)
    expected[-1] = 2  # .95 and 1
    np.testing.assert_array_equal(fairness.histogram(a), expected)
    np.testing.assert_array_equal(fairness.histogram(a.astype(float)), expected)


def test_a_running_mean_reaches_a_target():
    curve = np.array([0.2, 0.9, 0.4, 0.6, 0.8, 0.7])
    means = fairness.running_mean(curve)
    expected = [np.nan, np.nan, 1.5 / 3, 1.9 / 3, 1.8 / 3, 2.1 / 3]
    np.testing.assert_allclose(means, expected)
    assert fairness.first_reaching(curve, 0.45) == 2
    assert fairness.first_reaching(curve, 0.6) == 3
    assert fairness.first_reaching(curve, 0.65) == 5
    assert fairness.first_reaching(curve, 0.71) is None  # though .9 was there once
    assert fairness.first_reaching(curve[:2], 0.1) is None
    diverged = np.array([0.9, 0.9, np.nan, 0.9, 0.9])
    assert fairness.first_reaching(diverged, 0.1) is None


def test_area_is_the_mean_along_the_run():
    rounds = np.array([1, 2, 4, 10])
    assert fairness.area(rounds, np.full(4, 0.3)) == pytest.approx(0.3)
    assert fairness.area(rounds, 0.1 * rounds) == pytest.approx(0.1 * (1 + 10) / 2)
    by_hand = (1 * 0.5 + 2 * 1.5 + 6 * 1) / 9
    assert fairness.area(rounds, np.array([0, 1, 2, 0])) == pytest.approx(by_hand)
    assert np.isnan(fairness.area(rounds[:1], np.ones(1)))


@pytest.mark.parametrize("target", [0, -0.1, 1.0001, 80, float("nan")])
def test_a_target_is_an_accuracy(target):
    with pytest.raises(ValueError, match=f"target is {target}; expected"):
        fairness.check_targets([0.5, target])
    fairness.check_targets([1e-9, 1])


def test_clients_without_examples_are_no_share():
    accuracy = np.array([0.5, 0.6, 0.7, np.nan])
    share = fairness.worse_share(accuracy, np.array([0.6, 0.6, 0.6, 1.0]))
    assert share == 1 / 3
    assert np.isnan(fairness.worse_share(accuracy[3:], accuracy[:1]))
