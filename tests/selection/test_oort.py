import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.selection.oort import _scores
from selecting import (
    CLIENTS,
    SECONDS,
    SIZES,
    assert_proportional,
    cohort_of,
    draws,
    made,
    play,
)


def scores_of(state, penalty=2.0, preferred=0.5):
    """The scores of Algorithm 1 in NumPy, with rewards from 0 to 1; 0 of the unseen."""
    last = np.asarray(state.last)
    utility = np.asarray(state.utility, np.float64)
    seen = last > 0
    scores = np.zeros(CLIENTS)
    best, worst = utility[seen].max(), utility[seen].min()
    wanted = np.quantile(SECONDS, preferred)
    for k in np.flatnonzero(seen):
        reward = (utility[k] - worst) / ((best - worst) or 1)
        scores[k] = reward + np.sqrt(0.1 * np.log(int(state.round) + 1) / last[k])
        if SECONDS[k] > wanted:
            scores[k] *= (wanted / SECONDS[k]) ** penalty
    return scores


def known(utility, last, round_=5):
    return (
        made("oort")
        .init()
        ._replace(
            round=jnp.int32(round_),
            utility=jnp.asarray(utility, jnp.float32),
            last=jnp.asarray(last, jnp.int32),
        )
    )


def test_utilities_and_scores_replayed():
    select = made("oort")
    utility, last = np.zeros(CLIENTS), np.zeros(CLIENTS, int)
    wanted = np.quantile(SECONDS, 0.5)
    speed = np.minimum(wanted / SECONDS, 1) ** 2
    for number, round_ in enumerate(play(select, 10), 1):
        np.testing.assert_allclose(round_.before.utility, utility, rtol=1e-6)
        np.testing.assert_array_equal(round_.before.last, last)
        assert len(set(round_.ids)) == 3
        if number > 1:
            found = _scores(round_.before, jnp.asarray(speed), 0.95)
            np.testing.assert_allclose(found, scores_of(round_.before), rtol=1e-5)
        share = max(0.2, 0.9 * 0.98 ** (number - 1))
        new = min(int(share * 3), (last == 0).sum())
        at_least = 3 - min(3 - int(share * 3), (last > 0).sum())
        assert (last[round_.ids] == 0).sum() >= min(new, at_least)
        utility[round_.ids] = SIZES[round_.ids] * round_.loss
        last[round_.ids] = number
    assert (last > 0).all()


def test_the_best_are_drawn_where_none_is_explored():
    select = made("oort", exploration=0.0, least=0.0, penalty=0.0)
    utility = [1, 9, 2, 50, 40, 3, 60, 4]
    found = draws(select, known(utility, np.full(CLIENTS, 5)), 200)
    assert (np.sort(found) == [3, 4, 6]).all()


def test_a_utility_above_the_quantile_is_cut_off():
    """Of five, the third and fourth share are cut at the fourth utility."""
    utility = np.array([1, 2, 3, 4, 100, 0, 0, 0.0])
    state = known(utility, [5, 5, 5, 5, 5, 0, 0, 0])
    bonus = np.sqrt(0.1 * np.log(6) / 5)
    found = _scores(state, jnp.ones(CLIENTS), 0.6) - bonus
    np.testing.assert_allclose(found[:5], [0, 1 / 3, 2 / 3, 1, 1], rtol=1e-5)
    found = _scores(state, jnp.ones(CLIENTS), 1.0) - bonus
    np.testing.assert_allclose(found[:5], (utility[:5] - 1) / 99, atol=1e-6)


def test_a_client_is_not_drawn_beyond_its_most_reports():
    """Unless there are too few others."""
    options = {"exploration": 0.0, "least": 0.0, "penalty": 0.0}
    select = made("oort", 2, **options, most=3)
    state = known([9, 8, 7, 6, 1, 1, 1, 1], np.full(CLIENTS, 5))
    state = state._replace(reports=jnp.array([3, 2, 4, 0, 0, 0, 0, 0]))
    assert set(draws(select, state, 200).ravel()) == {1, 3}
    members = cohort_of([1, 3], mask=[1, 0])
    after = select.update(state, members, {"loss": jnp.ones(2)})
    assert after.reports.tolist() == [3, 3, 4, 0, 0, 0, 0, 0]
    state = state._replace(reports=jnp.array([3, 3, 3, 3, 3, 3, 3, 0]))
    found = draws(select, state, 200)
    assert (found == 7).any(1).all()
    assert all(len(set(row)) == 2 for row in found)


def test_near_the_lowest_that_has_a_place_the_draw_is_in_proportion():
    """The second of two places has 80: 95 % of its score admit three more."""
    select = made("oort", 2, exploration=0.0, least=0.0, penalty=0.0)
    utility = np.array([100, 80, 79, 78, 77, 1, 1, 0.0])
    state = known(utility, np.full(CLIENTS, 5))
    found = draws(select, state, 2000)
    assert set(found.ravel()) == {0, 1, 2, 3, 4}
    scores = scores_of(state, penalty=0.0)[:5]
    assert_proportional(found[:, 0], scores / scores.sum())


def test_slow_clients_lose_by_the_penalty():
    utility = np.full(CLIENTS, 7.0)
    utility[4] = 8.0  # the slowest
    state = known(utility, np.full(CLIENTS, 5))
    kept = made("oort", 1, exploration=0.0, least=0.0, penalty=0.0)
    assert (draws(kept, state, 50) == 4).all()
    slow = made("oort", 1, exploration=0.0, least=0.0, preferred=0.0, penalty=3.0)
    assert (draws(slow, state, 50) == 1).all()  # the fastest
    fine = made("oort", 1, exploration=0.0, least=0.0, preferred=1.0, penalty=3.0)
    assert (draws(fine, state, 50) == 4).all()


def test_the_pacer_replayed():
    """T moves by .05 when a window brought less than the one before it."""
    window = 3
    select = made("oort", preferred=0.85, pacer=window)
    sums = []
    steps = moved = 0
    for number, round_ in enumerate(play(select, 40), 1):
        came = round_.mask > 0
        sums.append((SIZES[round_.ids] * round_.loss)[came].sum())
        if number % window == 0 and number >= 2 * window:
            now = sum(sums[-window:])
            before = sum(sums[-2 * window : -window])
            steps += now < before
            moved += now >= before
        assert int(round_.after.steps) == steps
    assert steps > 3
    assert moved > 0
    still = made("oort", preferred=0.85, pacer=0)
    assert all(int(each.after.steps) == 0 for each in play(still, 12))


def test_the_pacer_lets_slow_clients_in():
    """Of equal utilities: T at the quantiles .4, .9 and 1, where nobody is slow."""
    options = {"exploration": 0.0, "least": 0.0, "penalty": 30.0, "preferred": 0.4}
    select = made("oort", 1, **options)
    state = known(np.full(CLIENTS, 7.0), np.full(CLIENTS, 5))
    for steps in (0, 10, 12, 1000):
        wanted = np.quantile(SECONDS, min(0.4 + 0.05 * steps, 1))
        found = draws(select, state._replace(steps=jnp.int32(steps)), 300)
        assert set(found.ravel()) == set(np.flatnonzero(wanted + 1e-6 >= SECONDS))


def test_who_does_not_report_brings_nothing():
    select = made("oort", pacer=2)
    members = cohort_of([1, 2, 3], mask=[1, 0, 1])
    after = select.update(select.init(), members, {"loss": jnp.array([1.0, 50, 2])})
    assert float(after.current) == SIZES[1] + 2 * SIZES[3]


def test_never_seen_clients_are_drawn_by_speed():
    select = made("oort", 1, exploration=1.0, least=1.0)
    share = 1 / SECONDS
    found = draws(select, select.init(), 4000)
    assert_proportional(found, share / share.sum())
    some = [0, 3, 0, 0, 2, 1, 0, 0]
    found = draws(select, known(np.ones(CLIENTS), some), 4000)
    share = np.where(np.array(some) == 0, share, 0)
    assert_proportional(found, share / share.sum())


def test_where_few_are_unseen_more_are_exploited():
    select = made("oort", 3, exploration=1.0, least=1.0)
    last = np.full(CLIENTS, 5)
    last[6] = 0
    found = draws(select, known(np.arange(CLIENTS), last), 200)
    assert (found == 6).any(1).all()
    assert all(len(set(row)) == 3 for row in found)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"exploration": 1.1}, "exploration is 1.1; expected a number from 0 to 1"),
        ({"decay": -0.1}, "decay is -0.1; expected a number from 0 to 1"),
        ({"least": 2.0}, "least is 2.0; expected a number from 0 to 1"),
        ({"penalty": -1.0}, "penalty is -1.0; expected a finite number >= 0"),
        ({"pacer": -1}, "pacer is -1; expected"),
        ({"preferred": 1.5}, "preferred is 1.5; expected a number from 0 to 1"),
        ({"cohort": 9}, "the cohort is 9, but 8 clients"),
    ],
)
def test_utilities_that_cannot_be(options, expected):
    with pytest.raises(ValueError, match=expected):
        made("oort", **options)
