"""Convolutions beside XLA's own, with JAX's gradients."""

import operator
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pfljax.models import convolution, convolution_forms, tiles
from pfljax.models.windows import Form, Window, resolve_sides

NUMBERS = ("NHWC", "HWIO", "NHWC")
# name: (image, channels, kernel, outputs, options)
CASES = {
    "twocnn": ((7, 8), 16, (5, 5), 4, {"padding": "SAME"}),
    "tiles of two": ((18, 17), 16, (3, 3), 16, {"padding": "SAME"}),
    "tiles of four": ((28, 27), 16, (3, 3), 17, {"padding": ((0, 1), (2, 0))}),
    "tiles under 5x5": ((18, 17), 17, (5, 5), 16, {"padding": "SAME"}),
    "tiles of a wide image": ((12, 25), 16, (3, 3), 16, {"padding": "SAME"}),
    "dilated, many channels": (
        (18, 17),
        16,
        (3, 3),
        16,
        {"rhs_dilation": (2, 1), "padding": "SAME"},
    ),
    "wide padding, many channels": (
        (18, 17),
        16,
        (3, 3),
        16,
        {"padding": ((3, 0),) * 2},
    ),
    "tiles in groups": (
        (18, 17),
        32,
        (5, 5),
        32,
        {"feature_group_count": 2, "padding": "VALID"},
    ),
    "few channels": ((7, 8), 3, (5, 5), 4, {"padding": ((1, 1), (1, 1))}),
    "one channel": ((7, 8), 1, (3, 3), 4, {"padding": "SAME"}),
    "valid": ((7, 8), 16, (3, 3), 4, {"padding": "VALID"}),
    "uneven": ((9, 7), 16, (3, 2), 4, {"padding": ((2, 0), (0, 1))}),
    "wide padding": ((7, 8), 16, (3, 3), 4, {"padding": ((3, 3), (3, 3))}),
    "smaller than the kernel": ((2, 2), 16, (3, 3), 4, {"padding": "SAME"}),
    "1x1": ((7, 8), 16, (1, 1), 4, {"padding": "SAME"}),
    "strides": ((7, 8), 16, (3, 3), 4, {"strides": (2, 1), "padding": "SAME"}),
    "wide strides": ((7, 8), 16, (2, 2), 4, {"strides": (1, 3), "padding": "VALID"}),
    "dilation": ((9, 8), 16, (3, 3), 4, {"rhs_dilation": (2, 1), "padding": "SAME"}),
    "groups": ((7, 8), 32, (3, 3), 6, {"feature_group_count": 2, "padding": "SAME"}),
    "depthwise": ((7, 8), 5, (3, 3), 5, {"feature_group_count": 5, "padding": "SAME"}),
    "two a channel": (
        (7, 8),
        3,
        (3, 3),
        6,
        {"feature_group_count": 3, "padding": "SAME"},
    ),
}

OTHER_SIZES = ("tiles of four", "tiles under 5x5", "tiles of a wide image")
OTHER_SIZES += ("dilated, many channels", "wide padding, many channels")
OTHER_SIZES += ("few channels", "uneven", "wide padding", "two a channel")
OTHER_SIZES += ("one channel", "valid", "smaller than the kernel", "1x1", "dilation")


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def operands(name, *lead):
    """(images, kernel, options) of a case, with leading axes."""
    image, channels, kernel, outputs, options = CASES[name]
    options = {"strides": (1, 1)} | options
    groups = options.get("feature_group_count", 1)
    x = draw(*lead, 2, *image, channels)
    k = draw(*lead, *kernel, channels // groups, outputs, seed=1)
    # Results of a spread of one: the sine of wide ones has any slope.
    fan_in = np.prod(k.shape[-4:-1])
    return x, k / np.sqrt(fan_in, dtype=np.float32), options


def result(function, options, x, kernel):
    """The convolution, its gradients, and the gradients of a function of these."""
    options = dict(options)
    fixed = (options.pop("strides"), options.pop("padding"))

    def total(x, kernel):
        y = function(x, kernel, *fixed, dimension_numbers=NUMBERS, **options)
        return jnp.sum(jnp.sin(y)), y

    def of_gradients(x, kernel):
        first, _ = jax.grad(total, (0, 1), has_aux=True)(x, kernel)
        return sum(jnp.sum(jnp.cos(leaf)) for leaf in first), first

    second, first = jax.grad(of_gradients, (0, 1), has_aux=True)(x, kernel)
    return total(x, kernel)[1], first, second


def assert_equal(ours, theirs, tolerance=1e-4):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        scale = np.abs(b).max()
        np.testing.assert_allclose(a / scale, b / scale, atol=tolerance)


FORMS = [  # the others take one of these with other sizes
    pytest.param(name, marks=[pytest.mark.slow] * (name in OTHER_SIZES))
    for name in CASES
]


@pytest.mark.parametrize("name", FORMS)
def test_value_and_gradients_are_those_of_lax(name):
    x, kernel, options = operands(name)
    theirs = jax.jit(partial(result, lax.conv_general_dilated, options))(x, kernel)
    for ours in (convolution.convolve, convolution.im2col):
        assert_equal(jax.jit(partial(result, ours, options))(x, kernel), theirs)


@pytest.mark.parametrize("count", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_channels_alone_take_any_batch(count):
    """They are computed part by part."""
    _, kernel, options = operands("depthwise")
    x = draw(count, 7, 8, 5)
    theirs = jax.jit(partial(result, lax.conv_general_dilated, options))(x, kernel)
    ours = jax.jit(partial(result, convolution.convolve, options))(x, kernel)
    if count:
        assert_equal(ours, theirs)
    chex.assert_trees_all_equal_shapes_and_dtypes(ours, theirs)


def test_sums_over_the_pixels_of_a_channel_are_of_float32():
    """Of 16 bits a sum over 16,384 pixels kept a tenth."""
    _, kernel, options = operands("depthwise")
    x, kernel = (jnp.asarray(a, jnp.bfloat16) for a in (draw(64, 16, 16, 5), kernel))
    _, (_, theirs), _ = result(lax.conv_general_dilated, options, x, kernel)
    _, (_, ours), _ = result(convolution.convolve, options, x, kernel)
    assert ours.dtype == jnp.bfloat16
    assert_equal(np.asarray(ours, np.float32), np.asarray(theirs, np.float32), 0.02)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("tiles of two", 2),
        ("tiles of four", 4),
        ("tiles of a wide image", 2),
        ("tiles under 5x5", 2),
        ("dilated, many channels", None),
        ("twocnn", None),
    ],
)
def test_a_convolution_takes_the_tiles_with_fewest_products(name, size):
    image, channels, kernel, outputs, options = CASES[name]
    window = Window(size=kernel, dilation=options.get("rhs_dilation", (1, 1)))
    padding = resolve_sides(options["padding"], image, window)
    form = Form(window._replace(padding=padding), image, channels, outputs)
    x = jax.ShapeDtypeStruct((2, *image, channels), jnp.float32)
    assert convolution_forms.tile_size(form, x) == size
    assert convolution_forms.tile_size(form._replace(outputs=15), x) is None
    for dtype in (jnp.bfloat16, jnp.int32):
        halved = jax.ShapeDtypeStruct(x.shape, dtype)
        assert convolution_forms.tile_size(form, halved) is None


@pytest.mark.slow
@pytest.mark.parametrize(("size", "pixels"), [(2, 3), (4, 3), (2, 5)])
def test_tiles_round_by_less_than_five_millionths(size, pixels):
    image = (16, 16)
    form = Form(Window((pixels, pixels)), image, channels=64, outputs=16)
    x = draw(4, *image, 64)
    kernel = draw(pixels, pixels, 64, 16, seed=1)
    slope = draw(4, *form.slope, 16, seed=2)
    windows = np.lib.stride_tricks.sliding_window_view(
        x.astype(np.float64), (pixels, pixels), axis=(1, 2)
    )
    exact = np.einsum("bhwcij,ijco->bhwo", windows, kernel)
    gradient = np.einsum("bhwcij,bhwo->ijco", windows, slope)
    pairs = [
        (tiles.forward(x, kernel, form, size), exact),
        (tiles.by_kernel(x, slope, form, size), gradient),
    ]
    for found, true in pairs:
        assert np.std(found - true) < 5e-6 * np.std(true)


@pytest.mark.parametrize(
    "name", ["twocnn", pytest.param("groups", marks=pytest.mark.slow)]
)
def test_clients_with_kernels_of_their_own_are_convolved_each(name):
    x, kernel, options = operands(name, 2, 3)  # runs, clients
    ours = partial(result, convolution.convolve, options)
    found = jax.jit(jax.vmap(jax.vmap(ours)))(x, kernel)
    theirs = jax.jit(partial(result, lax.conv_general_dilated, options))
    for place in np.ndindex(2, 3):
        of_client = jax.tree.map(operator.itemgetter(place), found)
        assert_equal(of_client, theirs(x[place], kernel[place]))


def test_clients_with_one_kernel_are_so_many_more_images():
    x, _, options = operands("twocnn", 3)
    _, kernel, _ = operands("twocnn")
    each = jax.vmap(partial(result, convolution.convolve, options), (0, None))
    theirs = jax.vmap(partial(result, lax.conv_general_dilated, options), (0, None))
    assert_equal(jax.jit(each)(x, kernel), jax.jit(theirs)(x, kernel))
    over = jax.vmap(lambda x: convolution.convolve(x, kernel, (1, 1), "SAME"))
    # No loop: a single convolution.
    assert "while" not in jax.jit(over).lower(x).as_text()


@pytest.mark.parametrize("name", ["twocnn", "strides", "groups"])
def test_slopes_have_slopes_forward(name):
    """Hessian products need this, in Per-FedAvg and for a loss's curvature."""
    x, kernel, options = operands(name)

    def product(convolve):
        def gradients(x, kernel):
            _, first, _ = result(convolve, options, x, kernel)
            return first

        return jax.jit(lambda *at: jax.jvp(gradients, at, at)[1])(x, kernel)

    ours = product(convolution.convolve)
    assert_equal(ours, product(lax.conv_general_dilated))


@pytest.mark.slow
def test_large_images_are_read_by_blocks(monkeypatch):
    x, kernel, options = operands("twocnn")
    theirs = result(lax.conv_general_dilated, options, x, kernel)
    monkeypatch.setattr(convolution_forms, "LARGE", 0)
    monkeypatch.setattr(convolution_forms, "BLOCK", 900)  # three of seven rows
    calls = []
    slid = convolution_forms._slide
    monkeypatch.setattr(
        convolution_forms, "_slide", lambda *args: calls.append(args) or slid(*args)
    )
    convolution._compile.cache_clear()
    ours = result(convolution.convolve, options, x, kernel)
    convolution._compile.cache_clear()
    assert_equal(ours, theirs)
    assert {block.shape[0] for _, block, _ in calls} == {3, 1}


def kinds(platform, function, *operands):
    """Names of StableHLO's operations in the function lowered for a platform."""
    traced = jax.jit(function).trace(*operands)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    return {word for word in ("convolution", "dot_general") if word in text}


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_the_platform_is_that_of_the_lowering(platform):
    x, kernel, options = operands("few channels")

    def gradients(x, kernel):
        return result(convolution.convolve, options, x, kernel)

    expected = {"dot_general"} if platform == "cpu" else {"convolution"}
    assert kinds(platform, gradients, x, kernel) == expected


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_kernels_by_client_are_matrix_products_elsewhere(platform):
    x, kernel, options = operands("twocnn", 3)
    each = jax.vmap(partial(result, convolution.convolve, options))
    assert kinds(platform, each, x, kernel) == {"dot_general"}


def test_a_wider_type_is_that_of_the_result():
    x, kernel = draw(1, 4, 4, 16), draw(3, 3, 16, 2)
    half = x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    given = (*half, (1, 1), "SAME")
    assert convolution.convolve(*given).dtype == jnp.bfloat16
    wide = convolution.convolve(*given, preferred_element_type=jnp.float32)
    theirs = lax.conv_general_dilated(
        *given, dimension_numbers=NUMBERS, preferred_element_type=jnp.float32
    )
    np.testing.assert_allclose(wide, theirs, rtol=1e-5, atol=1e-5)
    gradient = jax.grad(
        lambda x: convolution.convolve(x, half[1], (1, 1), "SAME").sum()
    )
    assert gradient(half[0]).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("x", "kernel", "options", "said"),
    [
        ((1, 4, 2), (3, 2, 2), {}, r"\[B, H, W, I\]"),
        ((1, 4, 4, 2), (3, 3, 2, 2), {"lhs_dilation": (1, 2)}, "conv='lax'"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused(x, kernel, options, said):
    with pytest.raises(ValueError, match=said):
        convolution.convolve(draw(*x), draw(*kernel), (1, 1), "SAME", **options)


def test_an_image_smaller_than_the_window_is_refused():
    with pytest.raises(ValueError, match="window of 5x3 pixels got an image of 4x7"):
        convolution.convolve(draw(1, 4, 7, 2), draw(5, 3, 2, 2), (1, 1), "VALID")


def test_the_convolution_of_a_name():
    assert convolution.conv_for_platform() is convolution.convolve
    assert convolution.conv_for_platform("im2col") is convolution.im2col
    assert convolution.conv_for_platform("lax") is lax.conv_general_dilated
    with pytest.raises(ValueError, match="known: auto, im2col, lax"):
        convolution.conv_for_platform("winograd")
