import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import selection
from pfljax.core.keys import derive
from selecting import (
    CLIENTS,
    SECONDS,
    assert_proportional,
    cohort_of,
    draws,
    made,
    play,
)

TIERS = 4  # of two clients each: 1 3 | 5 0 | 2 6 | 7 4
TIER_OF = np.argsort(np.argsort(SECONDS)) // 2


def test_one_tier_is_uniform():
    key = jax.random.key(8)
    ids = made("tifl", tiers=1, policy="uniform").choose((), key)
    plain = selection.uniform(3, CLIENTS)
    np.testing.assert_array_equal(ids, plain.choose((), derive(key, "members")))


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({"policy": "uniform"}, [0.25, 0.25, 0.25, 0.25]),
        ({"policy": "fast"}, [1, 0, 0, 0]),
        ({"policy": "slow"}, [0, 0, 0, 1]),
        ({"probabilities": (0.1, 0.2, 0.3, 0.4)}, [0.1, 0.2, 0.3, 0.4]),
    ],
)
def test_a_cohort_is_of_one_tier_of_a_fixed_probability(options, share):
    select = made("tifl", 2, tiers=TIERS, **options)
    assert not selection.learns(select)
    found = TIER_OF[draws(select, (), 2000)]
    assert (found[:, 0] == found[:, 1]).all()
    if max(share) < 1:
        assert_proportional(found[:, 0], share)
    else:
        assert (found == np.argmax(share)).all()


def test_the_policy_random_prefers_the_fastest_of_five():
    seconds = np.arange(10.0, 0, -1)
    found = draws(made("tifl", 1, seconds=seconds, policy="random"), (), 4000)
    share = np.repeat([0.7, 0.1, 0.1, 0.05, 0.05], 2)[::-1] / 2
    assert_proportional(found, share)


def replayed(rounds, interval, total):
    """Algorithm 2 in NumPy, with losses for accuracies: the states before rounds."""
    credit = np.full(TIERS, -(-total // TIERS))
    share = np.full(TIERS, 1 / TIERS)
    loss = np.full(TIERS, np.inf)
    before = loss.copy()
    for number, round_ in enumerate(rounds, 1):
        yield credit.copy(), share.copy(), loss.copy()
        (tier,) = set(TIER_OF[round_.ids])
        assert credit[tier] > 0
        assert share[tier] > 0
        loss[tier] = round_.loss.mean()
        credit[tier] -= 1
        if number % interval == 0:
            if loss[tier] >= before[tier]:
                left = [k for k in range(TIERS) if credit[k] > 0]
                left.sort(key=lambda k: -loss[k])
                count = len(left)
                share = np.zeros(TIERS)
                for rank, k in enumerate(left):
                    share[k] = (count - rank) / (count * (count + 1) / 2)
            before = loss.copy()
    yield credit, share, loss


@pytest.mark.parametrize("interval", [1, 3])
def test_the_adaptive_policy_replayed(interval):
    total = 12
    select = made("tifl", 2, tiers=TIERS, interval=interval, rounds=total)
    changed = False
    for seed in range(3):
        rounds = play(select, 8, seed)
        states = [*(each.before for each in rounds), rounds[-1].after]
        for state, wanted in zip(
            states, replayed(rounds, interval, total), strict=True
        ):
            credit, share, loss = wanted
            np.testing.assert_array_equal(state.credits, credit)
            np.testing.assert_allclose(state.probability, share, atol=1e-6)
            np.testing.assert_allclose(state.loss, loss, rtol=1e-6)
        changed |= np.ptp(share) > 0
    assert changed


def test_rounding_is_no_news_and_nobody_waited_for_is_not_measured():
    select = made("tifl", 2, tiers=TIERS, interval=1, seconds=np.full(8, 3.0))
    state = select.init()
    members = cohort_of([7, 4])
    loss = jnp.ones(2)
    waited = jnp.float32([3.000001, 0.0])
    after = select.update(state, members, {"loss": loss, "turn_seconds": waited})
    np.testing.assert_array_equal(after.speed.seconds, np.full(8, 3.0))
    np.testing.assert_array_equal(after.speed.turns, np.eye(8)[7])
    np.testing.assert_array_equal(after.speed.tier_of, state.speed.tier_of)


def test_without_a_clock_or_where_none_is_asked_tiers_stay():
    members = cohort_of([7, 4])
    loss = {"loss": jnp.ones(2)}
    timed = loss | {"turn_seconds": jnp.array([0.1, 0.2])}
    for options, metrics in (({}, loss), ({"retier": 0}, timed)):
        select = made("tifl", 2, tiers=TIERS, interval=1, **options)
        after = select.update(select.init(), members, metrics)
        np.testing.assert_array_equal(after.speed.tier_of, TIER_OF)
    after = made("tifl", 2, tiers=TIERS, interval=1).update(after, members, timed)
    assert after.speed.tier_of[jnp.array([7, 4])].tolist() == [0, 0]


def test_without_likely_credit_others_are_drawn_and_in_the_end_all():
    select = made("tifl", 2, tiers=TIERS)
    state = select.init()._replace(
        probability=jnp.array([1.0, 0, 0, 0]), credits=jnp.array([0, 0, 2, 1])
    )
    found = TIER_OF[draws(select, state, 300)]
    assert set(found.ravel()) == {2, 3}
    state = state._replace(credits=jnp.array([0, -1, 0, 0]))
    found = TIER_OF[draws(select, state, 300)]
    assert set(found.ravel()) == {0, 1, 2, 3}


def test_a_tier_of_which_nobody_reports_keeps_its_loss():
    select = made("tifl", 2, tiers=TIERS)
    state = select.init()._replace(loss=jnp.array([1.0, 2, 3, 4]))
    members = cohort_of([7, 4], mask=[0, 0])
    after = select.update(state, members, {"loss": jnp.array([jnp.nan, 9.0])})
    np.testing.assert_array_equal(after.loss, state.loss)
    np.testing.assert_array_equal(
        after.credits, state.credits - np.eye(4, dtype=int)[3]
    )


def test_a_round_of_empty_places_costs_no_tier():
    select = made("tifl", 2, tiers=TIERS)
    state = select.init()._replace(loss=jnp.array([1.0, 2, 3, 4]))
    members = cohort_of([0, 0], mask=[0, 0])._replace(draws=jnp.zeros(2))
    after = select.update(state, members, {"loss": jnp.array([jnp.nan, 9.0])})
    np.testing.assert_array_equal(after.loss, state.loss)
    np.testing.assert_array_equal(after.credits, state.credits)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tiers": 9}, "a tier has 0 of the 8 clients"),
        ({"tiers": 3}, "the cohort is 3, but a tier has 2 of the 8 clients"),
        ({"tiers": 0}, "tifl: tiers is 0; expected at least 1"),
        ({"interval": 0}, "interval is 0; expected at least 1"),
        ({"retier": -1}, "retier is -1; expected at least 0"),
        ({"policy": "quick"}, "policy is 'quick'; expected 'adaptive' "),
        ({"policy": "random", "tiers": 2}, "expected 2 numbers >= 0 that sum to 1"),
        ({"probabilities": (0.5, 0.6), "tiers": 2}, "2 numbers >= 0 that sum to 1"),
        ({"probabilities": (1.5, -0.5), "tiers": 2}, "2 numbers >= 0 that sum to 1"),
        (
            {"probabilities": "much", "tiers": 1},
            "probabilities are much; expected 1 nu",
        ),
        ({"seconds": np.ones(2)}, "the cohort is 3, but 2 clients"),
    ],
)
def test_tiers_that_cannot_be(options, expected):
    with pytest.raises(ValueError, match=expected) as error:
        made("tifl", **options)
    assert "\n" not in str(error.value)
