"""The index shuffle: a bijection for every size, uniform, independent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.core.shuffle import index_shuffle


def chi_square_bound(freedom):
    """About 5 standard deviations above the mean of chi-square."""
    return freedom + 5 * np.sqrt(2 * freedom)


@jax.jit
def images(sizes, key, epoch, places):
    """i32[S, P]: images of `places`; a place past the size repeats the last one."""

    def one(size):
        return index_shuffle(jnp.minimum(places, size - 1), size, key, epoch)

    return jax.vmap(one)(sizes)


@jax.jit
def whole(keys, epochs, size, places):
    """i32[T, P]: the shuffle of each (key, epoch)."""
    return jax.vmap(lambda k, e: index_shuffle(places, size, k, e))(keys, epochs)


def draw(size, trials, *, fixed_key=False):
    keys = jax.random.split(jax.random.key(7), trials)
    epochs = jnp.arange(trials) if fixed_key else jnp.zeros(trials, jnp.int32)
    keys = jnp.broadcast_to(keys[0], (trials,)) if fixed_key else keys
    return np.asarray(whole(keys, epochs, size, jnp.arange(size)))


@pytest.mark.parametrize(
    "sizes",
    [range(1, 1001), pytest.param(range(1016, 5001, 16), marks=pytest.mark.slow)],
)
def test_bijection_for_every_size_to_1000_and_some_to_5000(sizes):
    places = jnp.arange(sizes[-1])
    for some in np.split(np.asarray(sizes), range(250, len(sizes), 250)):
        found = np.asarray(images(some, jax.random.key(some[0]), some[0], places))
        for size, row in zip(some, found, strict=True):
            assert np.array_equal(np.sort(row[:size]), np.arange(size)), size


def test_an_epoch_for_each_index():
    epochs, places = jnp.arange(5)[:, None], jnp.arange(37)
    key = jax.random.key(2)
    shuffle = jax.jit(lambda *given: index_shuffle(*given))
    together = shuffle(jnp.broadcast_to(places, (5, 37)), 37, key, epochs)
    alone = [shuffle(places, 37, key, epoch) for epoch in range(5)]
    np.testing.assert_array_equal(together, np.stack(alone))
    assert len({tuple(row.tolist()) for row in alone}) == 5


@pytest.mark.parametrize(
    "size", [1_000_003, pytest.param(2**20, marks=pytest.mark.slow)]
)
def test_bijection_for_large_sizes(size):
    found = index_shuffle(jnp.arange(size), size, jax.random.key(1), 3)
    assert np.bincount(np.asarray(found), minlength=size).tolist() == [1] * size


@pytest.mark.parametrize("fixed_key", [False, True], ids=["keys", "epochs"])
@pytest.mark.parametrize(
    "size", [2, 17, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 64))]
)
def test_every_position_is_uniform(size, fixed_key):
    trials = 400 * size
    found = draw(size, trials, fixed_key=fixed_key)
    for place in range(size):
        counts = np.bincount(found[:, place], minlength=size)
        chi = np.sum((counts - 400) ** 2 / 400)
        assert chi < chi_square_bound(size - 1), (place, chi)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 4, 5])
def test_every_permutation_is_equally_likely(size):
    code = draw(size, 24_000) @ size ** np.arange(size)
    counts = np.unique(code, return_counts=True)[1]
    permutations = int(np.prod(np.arange(1, size + 1)))
    assert len(counts) == permutations
    expected = 24_000 / permutations
    chi = np.sum((counts - expected) ** 2 / expected)
    assert chi < chi_square_bound(permutations - 1)


@pytest.mark.slow
@pytest.mark.parametrize("size", [6, 13, 24])
def test_pairs_of_positions_are_independent(size):
    """Where two neighbours go: every ordered pair of places equally often."""
    trials = 60 * size * (size - 1)
    found = draw(size, trials)
    for a, b in ((0, 1), (1, 2), (0, size // 2), (size - 2, size - 1)):
        counts = np.bincount(found[:, a] * size + found[:, b], minlength=size**2)
        pairs = counts.reshape(size, size)[~np.eye(size, dtype=bool)]
        chi = np.sum((pairs - 60) ** 2 / 60)
        assert chi < chi_square_bound(size * (size - 1) - 1), (a, b, chi)


@pytest.mark.slow
@pytest.mark.parametrize("lag", [1, 2, 16])
@pytest.mark.parametrize("fixed_key", [False, True], ids=["clients", "epochs"])
def test_epochs_and_clients_are_independent(lag, fixed_key):
    """The image of a place now against its image `lag` epochs or clients later."""
    size = 12
    found = draw(size, 100 * size**2 + lag, fixed_key=fixed_key)
    for place in (0, 5, 11):
        now, later = found[:-lag, place], found[lag:, place]
        counts = np.bincount(now * size + later, minlength=size**2)
        chi = np.sum((counts - 100) ** 2 / 100)
        assert chi < chi_square_bound(size**2 - 1), (place, chi)


@pytest.mark.parametrize("fixed_key", [False, True], ids=["clients", "epochs"])
def test_shuffles_of_a_large_set_are_uncorrelated(fixed_key):
    """|r| of 60,000 values is below 5 / sqrt(60000) for places and for neighbours."""
    size = 60_000
    found = draw(size, 6, fixed_key=fixed_key).astype(float)
    orders = [*found, np.arange(size, dtype=float), *(np.roll(r, 1) for r in found)]
    corr = np.corrcoef(orders)[~np.eye(len(orders), dtype=bool)]
    assert np.abs(corr).max() < 5 / np.sqrt(size)


def test_shape_type_and_a_single_row():
    found = index_shuffle(jnp.zeros((2, 3), jnp.uint32), 1, jax.random.key(0), 9)
    assert found.shape == (2, 3)
    assert jnp.issubdtype(found.dtype, jnp.integer)
    assert not np.any(found)


def test_size_and_epoch_are_traced():
    traced = jax.jit(index_shuffle)
    for size in (5, 50, 500):
        traced(jnp.arange(4), size, jax.random.key(0), size + 1)
    assert traced._cache_size() == 1
