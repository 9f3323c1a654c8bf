import jax.numpy as jnp
import numpy as np
import pytest

from selecting import CLIENTS, SIZES, assert_proportional, draws, made, play


def test_all_candidates_are_a_draw_by_rows():
    select = made("power_of_choice", 1, candidates=1)
    found = draws(select, select.init(), 4000)
    assert_proportional(found, SIZES / SIZES.sum())


def test_the_greediest_takes_the_largest_losses():
    select = made("power_of_choice", candidates=CLIENTS)
    losses = jnp.array([3, 1, 4, 1.5, 9, 2.6, 5, 3.5])
    found = draws(select, losses, 20)
    assert (np.sort(found) == [2, 4, 6]).all()
    losses = losses.at[1].set(jnp.inf)  # never seen
    assert (draws(select, losses, 20)[:, 0] == 1).all()


def test_nobody_without_rows_is_a_candidate_before_others():
    sizes = np.where(np.arange(CLIENTS) < 4, 0, SIZES)
    select = made("power_of_choice", 2, candidates=4, sizes=sizes)
    assert (draws(select, select.init(), 200) >= 4).all()


def test_losses_are_those_of_the_last_report():
    select = made("power_of_choice", candidates=5)
    known = np.full(CLIENTS, np.inf)
    for round_ in play(select, 10):
        np.testing.assert_array_equal(round_.before, known.astype(np.float32))
        known[round_.ids] = round_.loss
        assert len(set(round_.ids)) == 3
    assert np.isfinite(known).all()  # who was never seen goes first


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"candidates": 2}, "candidates is 2; expected 3 <= candidates <= 8"),
        ({"candidates": 9}, "candidates is 9; expected 3 <= candidates <= 8"),
        ({"cohort": 9}, "the cohort is 9, but 8 clients"),
    ],
)
def test_candidates_that_cannot_be(options, expected):
    with pytest.raises(ValueError, match=expected):
        made("power_of_choice", **options)
