import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pfljax.models import convolution

NUMBERS = ("NHWC", "HWIO", "NHWC")


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def both(convolution, x, kernel, strides, padding):
    def total(x, kernel):
        y = convolution(x, kernel, strides, padding, dimension_numbers=NUMBERS)
        return jnp.sum(jnp.sin(y)), y

    (_, y), gradient = jax.value_and_grad(total, (0, 1), has_aux=True)(x, kernel)
    return y, gradient


@pytest.mark.parametrize(
    ("kernel", "strides", "padding"),
    [
        (5, (1, 1), "SAME"),  # twocnn
        (5, (1, 1), ((1, 1), (1, 1))),
        (3, (1, 1), "SAME"),  # gn_cnn
        (3, (2, 1), "SAME"),
        (3, (2, 2), "VALID"),
        (2, (1, 3), ((0, 1), (2, 0))),
    ],
)
def test_im2col_is_lax_conv_in_value_and_gradient(kernel, strides, padding):
    x, k = draw(2, 7, 8, 3), draw(kernel, kernel, 3, 4, seed=1)
    run = jax.jit(both, static_argnums=(0, 3, 4))
    ours = run(convolution.im2col, x, k, strides, padding)
    theirs = run(lax.conv_general_dilated, x, k, strides, padding)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_im2col_stays_a_matrix_product_under_vmap():
    x, k = draw(4, 2, 6, 6, 1), draw(4, 3, 3, 1, 2, seed=1)
    each = jax.vmap(lambda x, k: convolution.im2col(x, k, (1, 1), "SAME"))
    jaxpr = str(jax.make_jaxpr(each)(x, k))
    assert "dot_general" in jaxpr
    assert "conv_general_dilated" not in jaxpr


@pytest.mark.parametrize(
    "options",
    [{"feature_group_count": 2}, {"rhs_dilation": (2, 1)}, {"lhs_dilation": (1, 2)}],
)
def test_im2col_refuses_what_it_cannot_do(options):
    with pytest.raises(ValueError, match="use conv='lax'"):
        convolution.im2col(
            draw(1, 4, 4, 2), draw(3, 3, 2, 2), (1, 1), "SAME", **options
        )


def test_im2col_refuses_other_ranks():
    with pytest.raises(ValueError, match=r"\[B, H, W, I\]"):
        convolution.im2col(draw(1, 4, 2), draw(3, 2, 2), (1,), "SAME")


def test_platform_chooses_the_convolution(monkeypatch):
    assert convolution.conv_for_platform("im2col") is convolution.im2col
    assert convolution.conv_for_platform("lax") is lax.conv_general_dilated
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert convolution.conv_for_platform() is convolution.im2col
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert convolution.conv_for_platform() is lax.conv_general_dilated
    with pytest.raises(ValueError, match="known: auto, im2col, lax"):
        convolution.conv_for_platform("winograd")


@pytest.mark.parametrize(("size", "pad"), [(6, 0), (7, 0), (6, 1), (7, 1)])
def test_max_pool_is_reduce_window(size, pad):
    x = draw(2, size, size, 3)
    sides = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    window = (1, 2, 2, 1)
    expected = lax.reduce_window(x, -jnp.inf, lax.max, window, window, sides)
    np.testing.assert_array_equal(convolution.max_pool(x, pad), expected)


def test_max_pool_gives_the_gradient_to_the_maximum():
    gradient = jax.grad(lambda x: jnp.sum(convolution.max_pool(x, 1)))(draw(1, 4, 4, 1))
    assert set(np.unique(gradient)) == {0.0, 1.0}
    assert gradient.sum() == 9


def test_max_pool_refuses_images_without_a_square():
    with pytest.raises(ValueError, match="1x4 pixels"):
        convolution.max_pool(draw(2, 1, 4, 3))


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_is_a_grouped_convolution(stride, pad):
    x, k = draw(2, 9, 8, 5), draw(3, 3, 1, 5, seed=1)
    wanted = lax.conv_general_dilated(
        x, k, (stride, stride), [(pad, pad)] * 2,
        dimension_numbers=NUMBERS, feature_group_count=5,
    )  # fmt: skip
    found = convolution.depthwise(x, k, stride, pad)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [7, 8, 14])
def test_window_max_is_reduce_window(size):
    x = draw(2, size, size, 3)
    sides = ((0, 0), (1, 1), (1, 1), (0, 0))
    wanted = lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), sides)
    np.testing.assert_array_equal(
        convolution.window_max(x, size=3, stride=2, pad=1), wanted
    )
