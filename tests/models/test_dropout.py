"""Dropout: how often, how independently, and where it is off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax.models.dropout import Dropout, keep

KEY = jax.random.key(7)
N = 200_000


class Twice(nn.Module):
    """Two layers on the same input, side by side."""

    @nn.compact
    def __call__(self, x):
        return Dropout(0.5)(x), Dropout(0.5)(x)


def bits(seed=0, rate=0.5, shape=(N,)):
    return np.asarray(keep(jax.random.key(seed), shape, rate), float)


def correlation(a, b):
    return np.corrcoef(a.ravel(), b.ravel())[0, 1]


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.25, 0.5, 0.9])
def test_the_rate_is_kept(rate):
    kept = np.array([bits(seed, rate).sum() for seed in range(5)])
    bound = 4.5 * np.sqrt(N * rate * (1 - rate))
    assert (abs(kept - N * (1 - rate)) <= bound).all()


def test_rates_vary_between_keys_as_a_binomial():
    kept = jax.vmap(lambda key: keep(key, (256,), 0.5).sum())
    counts = np.asarray(kept(jax.random.split(KEY, 2000)), float)
    np.testing.assert_allclose(counts.mean(), 128, atol=4 * 8 / np.sqrt(2000))
    np.testing.assert_allclose(counts.var(), 64, rtol=4 * np.sqrt(2 / 2000))


@pytest.mark.parametrize("lag", [1, 2, 3, 8, 64, 128, 12_544])
def test_elements_are_independent(lag):
    mask = bits()
    assert abs(correlation(mask[lag:], mask[:-lag])) < 4.5 / np.sqrt(N - lag)


@pytest.mark.parametrize("shift", range(3))
def test_keys_are_independent(shift):
    a = bits(1)
    for seed in (2, 3, 1 << 20):
        b = np.roll(bits(seed), shift)
        assert abs(correlation(a, b)) < 4.5 / np.sqrt(N)


def test_neighbouring_steps_are_independent():
    a, b = (keep(jax.random.fold_in(KEY, i), (N,), 0.5) for i in (0, 1))
    assert abs(correlation(np.float64(a), np.float64(b))) < 4.5 / np.sqrt(N)


def test_layers_of_a_model_are_independent():
    x = jnp.ones((100, 1000))
    a, b = Twice().apply({}, x, rngs={"dropout": KEY})
    assert abs(correlation(np.asarray(a), np.asarray(b))) < 4.5 / np.sqrt(x.size)


def test_the_mean_stays_and_what_is_kept_is_scaled():
    x = jnp.full((N,), 3.0)
    y = np.asarray(Dropout(0.25).apply({}, x, rngs={"dropout": KEY}))
    assert set(np.unique(y)) == {0.0, 4.0}
    np.testing.assert_allclose(y.mean(), 3.0, atol=4.5 * np.sqrt(3 / N))


def test_the_gradient_is_zero_where_dropped():
    x = jnp.arange(1.0, 1001)

    def total(x):
        return Dropout(0.5).apply({}, x, rngs={"dropout": KEY}).sum()

    kept = np.asarray(keep_of(x))
    np.testing.assert_array_equal(jax.grad(total)(x), np.where(kept, 2.0, 0.0))
    assert 0 < kept.sum() < kept.size


def keep_of(x):
    return Dropout(0.5).apply({}, x, rngs={"dropout": KEY}) != 0


def test_without_a_key_it_is_off():
    x = jnp.arange(10.0)
    assert Dropout(0.5).apply({}, x) is x


def test_clients_under_vmap_have_their_own_masks():
    keys, x = jax.random.split(KEY, 4), jnp.ones((50, 1000))

    def one(key):
        return Dropout(0.5).apply({}, x, rngs={"dropout": key})

    stacked = np.asarray(jax.vmap(one)(keys))
    np.testing.assert_array_equal(stacked[2], one(keys[2]))
    for i in range(1, 4):
        assert abs(correlation(stacked[0], stacked[i])) < 4.5 / np.sqrt(x.size)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(ValueError, match="expected 0 <= rate < 1"):
        keep(KEY, (3,), rate)
