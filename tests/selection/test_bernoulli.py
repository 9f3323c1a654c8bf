import jax
import numpy as np
import pytest

from pfljax import selection
from pfljax.core.keys import derive
from selecting import CLIENTS, assert_proportional, draws, made


def test_every_client_tosses_a_coin_of_its_own():
    select = made("bernoulli", 2, places=CLIENTS)
    found = draws(select, (), 4000)
    there = (found[:, :, None] == np.arange(CLIENTS)).any(1)
    assert there.sum() == (found < CLIENTS).sum()  # nobody twice
    np.testing.assert_allclose(there.mean(0), 2 / CLIENTS, atol=0.03)
    # The number is binomial: coins are independent.
    np.testing.assert_allclose(there.sum(1).var(), 2 * (1 - 2 / CLIENTS), rtol=0.1)


def test_too_many_are_cut_to_a_uniform_choice():
    found = draws(made("bernoulli", 3, places=3), (), 4000)
    full = found[(found < CLIENTS).all(1)]
    assert_proportional(full, np.full(CLIENTS, 1 / CLIENTS))
    assert len(full) < len(found)


def test_places_hold_most_draws():
    select = selection.bernoulli(20, 400)
    assert select.cohort == 20 + 14  # 3 sqrt(20 * .95) = 13.08
    found = draws(select, (), 300)
    assert (found < 400).sum(1).max() <= 34
    assert (found[:, -1] < 400).mean() < 0.02


def test_a_coin_that_always_falls_is_everybody():
    key = jax.random.key(4)
    everybody = selection.uniform(CLIENTS, CLIENTS)
    ids = made("bernoulli", CLIENTS).choose((), key)
    wanted = everybody.choose((), derive(key, "places"))
    np.testing.assert_array_equal(ids, wanted)


@pytest.mark.parametrize(
    ("cohort", "options", "expected"),
    [
        (3, {"places": 2}, "places is 2; expected 3 <= places <= 8"),
        (3, {"places": 9}, "places is 9; expected 3 <= places <= 8"),
        (3, {"places": 0}, "bernoulli: places is 0; expected at least 1"),
        (9, {}, "the cohort is 9, but 8 clients"),
    ],
)
def test_places_that_cannot_be(cohort, options, expected):
    with pytest.raises(ValueError, match=expected):
        made("bernoulli", cohort, **options)
