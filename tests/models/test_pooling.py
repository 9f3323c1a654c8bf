import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pfljax.models import pooling


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("size", "pad"), [(6, 0), (7, 0), (6, 1), (7, 1)])
def test_max_pool_is_reduce_window(size, pad):
    x = draw(2, size, size, 3)
    sides = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    window = (1, 2, 2, 1)
    expected = lax.reduce_window(x, -jnp.inf, lax.max, window, window, sides)
    np.testing.assert_array_equal(pooling.max_pool(x, pad), expected)


def test_max_pool_gives_the_gradient_to_the_maximum():
    gradient = jax.grad(lambda x: jnp.sum(pooling.max_pool(x, 1)))(draw(1, 4, 4, 1))
    assert set(np.unique(gradient)) == {0.0, 1.0}
    assert gradient.sum() == 9


def test_max_pool_refuses_images_without_a_square():
    with pytest.raises(ValueError, match="1x4 pixels"):
        pooling.max_pool(draw(2, 1, 4, 3))


@pytest.mark.parametrize(
    "size", [7, *(pytest.param(size, marks=pytest.mark.slow) for size in (8, 14))]
)
def test_window_max_is_reduce_window(size):
    x = draw(2, size, size, 3)
    sides = ((0, 0), (1, 1), (1, 1), (0, 0))
    wanted = lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), sides)
    np.testing.assert_array_equal(
        pooling.window_max(x, size=3, stride=2, pad=1), wanted
    )
