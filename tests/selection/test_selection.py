import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import selection
from pfljax.core import training

CHI_SQUARE = {4: 23.5, 9: 33.7}  # upper 1e-4 quantiles, by degrees of freedom


def draws(select, count):
    """The cohorts of `count` keys, i32[count, M]."""
    return np.asarray(
        jax.jit(jax.vmap(lambda key: select.choose((), key)))(keys(count))
    )


def keys(count):
    return jax.random.split(jax.random.key(0), count)


def assert_proportional(found, share):
    """Chi-square of the counts of each client against its share."""
    expected = share * found.size
    counts = np.bincount(found.ravel(), minlength=len(share))
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < CHI_SQUARE[len(share) - 1]


@pytest.mark.parametrize(("cohort", "clients"), [(1, 1), (3, 10), (10, 10)])
def test_uniform_draws_different_clients(cohort, clients):
    for ids in draws(selection.uniform(cohort, clients), 50):
        assert len(set(ids)) == cohort
        assert set(ids) <= set(range(clients))


def test_every_client_is_drawn_as_often():
    found = draws(selection.uniform(3, 10), 4000)
    assert_proportional(found, np.full(10, 0.1))
    assert_proportional(found[:, :1], np.full(10, 0.1))  # and at every place


def test_a_cohort_of_a_million_clients():
    ids = draws(selection.uniform(5, 1_000_000), 20)
    assert all(len(set(row)) == 5 for row in ids)
    assert ids.min() >= 0
    assert ids.max() > 500_000


def test_by_size_draws_in_proportion_to_examples():
    sizes = np.array([10, 0, 30, 5, 55])
    found = draws(selection.by_size(4, sizes), 2000)
    assert not (found == 1).any()
    here = np.array([0, 2, 3, 4])
    counts = np.bincount(found.ravel(), minlength=5)[here]
    expected = sizes[here] / 100 * found.size
    assert ((counts - expected) ** 2 / expected).sum() < CHI_SQUARE[4]


@pytest.mark.parametrize(("share", "late"), [(0.0, 0), (0.5, 5), (0.9, 9), (1.0, 10)])
@pytest.mark.parametrize("drop", [False, True])
def test_stragglers_run_whole_epochs(share, late, drop):
    epochs, per_epoch = 5, np.arange(1, 11)
    select = selection.stragglers(selection.uniform(10, 10), share, epochs, drop)
    full = jnp.asarray(epochs * per_epoch)
    steps, mask = jax.vmap(lambda key: select.work((), key, (), full))(keys(200))
    steps = np.asarray(steps)
    part = steps != np.asarray(full)
    assert (part.sum(1) == late).all()
    np.testing.assert_array_equal(mask, np.where(part & drop, 0, 1))
    assert not np.any(steps % per_epoch)
    if late:
        assert set((steps // per_epoch)[part]) == {1, 2, 3, 4}
        assert part.any(0).all()


def test_stragglers_of_a_fraction_run_the_whole_epochs_below_it():
    per_epoch = np.arange(1, 11)
    select = selection.stragglers(selection.uniform(10, 10), 1.0, 2.5)
    full = training.times(jnp.asarray(per_epoch), 2.5)
    steps, _ = jax.vmap(lambda key: select.work((), key, (), full))(keys(100))
    assert not np.any(np.asarray(steps) % per_epoch)
    assert set((np.asarray(steps) // per_epoch).ravel()) == {1, 2}


@pytest.mark.parametrize("epochs", [1, 1.0, 0.5, None])
def test_stragglers_of_one_epoch_run_some_of_its_steps(epochs):
    select = selection.stragglers(selection.uniform(3, 3), 1.0, epochs)
    full = jnp.asarray([8, 2, 1])
    steps, mask = jax.vmap(lambda key: select.work((), key, (), full))(keys(300))
    assert [set(np.asarray(column)) for column in steps.T] == [
        set(range(1, 8)),
        {1},
        {1},
    ]
    assert (mask == 1).all()


def test_stragglers_leave_the_cohort_and_are_the_same_for_all():
    plain = selection.uniform(4, 9)
    select = selection.stragglers(plain, 0.5, 5)
    key = jax.random.key(1)
    np.testing.assert_array_equal(select.choose((), key), plain.choose((), key))
    kept, _ = select.work((), key, (), jnp.full(4, 20))
    dropped = selection.stragglers(plain, 0.5, 5, drop=True)
    np.testing.assert_array_equal(kept, dropped.work((), key, (), jnp.full(4, 20))[0])


@pytest.mark.parametrize(
    ("cohort", "expected"),
    [
        (0, "uniform: cohort is 0; expected at least 1"),
        (-1, "uniform: cohort is -1; expected at least 1"),
        (9, "the cohort is 9, but 8 clients"),
    ],
)
def test_a_cohort_that_cannot_be(cohort, expected):
    with pytest.raises(ValueError, match=expected):
        selection.uniform(cohort, 8)


def test_a_cohort_by_size_has_at_least_one():
    with pytest.raises(ValueError, match="by_size: cohort is 0; expected at least 1"):
        selection.by_size(0, np.array([1]))


@pytest.mark.parametrize(("cohort", "sizes"), [(2, [0, 0]), (2, [3, -1])])
def test_sizes_that_cannot_be(cohort, sizes):
    with pytest.raises(ValueError, match="examples to draw by"):
        selection.by_size(cohort, np.array(sizes))


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_that_cannot_be(share):
    with pytest.raises(
        ValueError, match=f"stragglers: share is {share}; expected a number from"
    ):
        selection.stragglers(selection.uniform(2, 4), share, 5)
