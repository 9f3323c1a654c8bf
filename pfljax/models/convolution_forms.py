"""A convolution and its two gradients, in the forms that they are computed in.

`OURS` and `BY_LAX` hold "forward" of (x, kernel), "by_images" of (slope, kernel) and
"by_kernel" of (x, slope), each also given the `Form`. Which form is fast on a CPU, in a
loop, is measured in experiments/speed/REPORT.md. Where tiles take fewer products, and
numbers have 32 bits, tiles are taken.
"""

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from pfljax.core.types import Array
from pfljax.models import tiles
from pfljax.models.windows import Form, pad_images, reach, shift

NUMBERS = ("NHWC", "HWIO", "NHWC")
# Of so few channels XLA's convolution fills no vector; of one it has a form of its own.
FEW_CHANNELS = range(2, 16)
# Bytes of a slope: one that outgrows a core's cache is read block by block.
LARGE = 1_500_000
BLOCK = 400_000
# Results along an axis of a tile, by the kernel: larger tiles would round more.
TILES = {(3, 3): (2, 4), (5, 5): (2,)}
# Of fewer the transforms take as long as the products that they save.
LEAST_CHANNELS = 16
Operation = Callable[..., Array]


def by_lax(x: Array, kernel: Array, form: Form) -> Array:
    """XLA's convolution."""
    return lax.conv_general_dilated(
        x,
        kernel,
        window_strides=form.window.strides,
        padding=form.window.padding,
        rhs_dilation=form.window.dilation,
        dimension_numbers=NUMBERS,
        feature_group_count=form.groups,
        precision=form.precision,
    )


def by_columns(x: Array, kernel: Array, form: Form) -> Array:
    """The pixels under each window, [B, H', W', h * w * I], times the kernel."""
    columns = _columns(x, form)
    flat = kernel.reshape(-1, form.outputs)
    return jnp.matmul(columns, flat, precision=form.precision)


def by_channel(x: Array, kernel: Array, form: Form) -> Array:
    """Each channel under its own filter: one multiply and add a pixel of the window."""
    weights = kernel.reshape(-1, form.channels)
    # Summed in the order of the window's pixels, one after another.
    terms = map(jnp.multiply, shift(x, form.window), weights)
    return reduce(jnp.add, terms)


def image_gradient(
    forward: Operation, slope: Array, kernel: Array, form: Form
) -> Array:
    """The gradient in the images of one of the forms above, by JAX."""
    shape = (len(slope), *form.image, form.channels)
    images = jax.ShapeDtypeStruct(shape, slope.dtype)
    turned = jax.linear_transpose(lambda x: forward(x, kernel, form), images)
    (gradient,) = turned(slope)
    return gradient


def kernel_gradient(forward: Operation, x: Array, slope: Array, form: Form) -> Array:
    """The gradient in the kernel of one of the forms above, by JAX."""
    kernel = jax.ShapeDtypeStruct(form.kernel, x.dtype)
    turned = jax.linear_transpose(lambda kernel: forward(x, kernel, form), kernel)
    (gradient,) = turned(slope)
    return gradient


def columns_kernel(x: Array, slope: Array, form: Form) -> Array:
    """The kernel's gradient as (dY^T X)^T, faster on CPU than X^T dY.

    The barrier keeps XLA from folding the transposition back into the product.
    """
    columns = _columns(x, form)
    # One row a window, over all images: one product sums over both.
    dy = slope.reshape(-1, form.outputs)
    flat = columns.reshape(-1, columns.shape[-1])
    product = jnp.matmul(dy.T, flat, precision=form.precision)
    transposed = lax.optimization_barrier(product)
    return transposed.T.reshape(*form.window.size, form.channels, form.outputs)


def turned_images(forward: Operation, slope: Array, kernel: Array, form: Form) -> Array:
    """The gradient in the images as a convolution of the slope, for strides of 1."""
    flipped = kernel[::-1, ::-1].transpose(0, 1, 3, 2)
    return forward(slope, flipped, _turn(form))


def turned_kernel(x: Array, slope: Array, form: Form) -> Array:
    """The gradient in the kernel as a convolution of channels with the slope.

    x as [I, H, W, B], and the slope as the kernel [H', W', B, O], for strides of 1: the
    only form of it that XLA's CPU convolution is fast at, within a loop.
    """
    images = pad_images(x, form.window.padding).transpose(3, 1, 2, 0)
    kernel = slope.transpose(1, 2, 0, 3)
    rows = len(kernel)
    # The slope is read once a channel: by blocks of rows that stay in the cache.
    step = rows
    size = _bytes(slope)
    if size > LARGE:
        step = max(1, rows * BLOCK // size)
    behind = reach(form.window)[0] - 1
    gradients = []
    for row in range(0, rows, step):
        block = kernel[row : row + step]
        seen = images[:, row : row + len(block) + behind]
        gradients.append(_slid(seen, block, form))
    return reduce(jnp.add, gradients).transpose(1, 2, 0, 3)


def forward(x: Array, kernel: Array, form: Form) -> Array:
    """The convolution, in the form that is fast."""
    size = tile_size(form, x)
    if size:
        return tiles.forward(x, kernel, form, size)
    fast = _fast(form)
    if fast is by_channel:
        parts = _by_part(lambda part: by_channel(part, kernel, form), x)
        return parts.reshape(-1, *parts.shape[2:])
    return fast(x, kernel, form)


def by_images(slope: Array, kernel: Array, form: Form) -> Array:
    """The gradient in the images, in the form that is fast."""
    if tile_size(_turn(form), slope):
        return turned_images(forward, slope, kernel, form)
    fast = _fast(form)
    # Large images: the product reads them once, and so few windows overlap little.
    if fast is by_lax and _bytes(slope) <= LARGE:
        return turned_images(by_lax, slope, kernel, form)
    if fast is by_lax:
        fast = by_columns
    return image_gradient(fast, slope, kernel, form)


def by_kernel(x: Array, slope: Array, form: Form) -> Array:
    """The gradient in the kernel, in the form that is fast."""
    size = tile_size(form, x)
    if size:
        return tiles.by_kernel(x, slope, form, size)
    fast = _fast(form)
    if fast is by_lax:
        return turned_kernel(x, slope, form)
    if fast is by_columns:
        return columns_kernel(x, slope, form)

    def part_gradient(part: tuple[Array, Array]) -> Array:
        # The sum over pixels is of float32 at least: of 16 bits it would keep eight.
        wide = jnp.promote_types(x.dtype, jnp.float32)
        images, slopes = (array.astype(wide) for array in part)
        return kernel_gradient(fast, images, slopes, form)

    return _by_part(part_gradient, (x, slope)).sum(0).astype(x.dtype)


def _by_part(operation: Callable[[Any], Array], batch: Any) -> Array:
    """The operation on each part of a batch, in a loop, which takes finished arrays.

    Else XLA computes what gives the images anew for each pixel of a window that sees
    them: a step of MobileNet takes a sixth longer.
    """
    size = len(jax.tree.leaves(batch)[0])
    # Few parts, for a loop's turn costs time; an empty batch is one.
    parts = next((n for n in range(2, size) if size % n == 0), max(size, 1))
    stacked = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), batch)
    return lax.map(operation, stacked)


def tile_size(form: Form, images: Array) -> int | None:
    """Results along an axis of the tiles that take least; None where windows do."""
    few = min(form.channels, form.outputs) < LEAST_CHANNELS
    floating = jnp.issubdtype(images.dtype, jnp.floating)
    # Sums of values at the points would lose what half a float keeps.
    exact = floating and images.dtype.itemsize >= 4
    if few or not exact or _fast(form) is not by_lax:
        return None
    batch = len(images)
    products = batch * math.prod(form.slope) * math.prod(form.window.size)
    costs: dict[int | None, int] = {None: products}
    for size in TILES.get(form.window.size, ()):
        costs[size] = tiles.cost(form, batch, size)
    return min(costs, key=costs.__getitem__)


def _fast(form: Form) -> Operation:
    """Which of the forms a convolution without groups, or by channel, takes."""
    if form.groups > 1:
        return by_channel
    if form.columns or form.channels in FEW_CHANNELS or not _slides(form):
        return by_columns
    return by_lax


def _slides(form: Form) -> bool:
    """Whether XLA's fast convolution takes it and both of its gradients."""
    window = form.window
    # Dilated, columns take two thirds to six sevenths of its time.
    if window.strides != (1, 1) or window.dilation != (1, 1) or window.size == (1, 1):
        return False
    axes = zip(form.image, form.slope, reach(window), window.padding, strict=True)
    # It is slow where the kernel is larger than the image; no padding may be negative,
    # a gradient's neither.
    return all(
        covered <= min(size, of_slope) and min(pad) >= 0 and max(pad) < covered
        for size, of_slope, covered, pad in axes
    )


def _in_groups(operation: Operation) -> Operation:
    """The operation of each group by itself, but for groups of a single channel."""

    def over_groups(first: Array, second: Array, form: Form) -> Array:
        if form.groups == 1 or form.groups == form.channels == form.outputs:
            return operation(first, second, form)
        one = form._replace(
            groups=1,
            channels=form.channels // form.groups,
            outputs=form.outputs // form.groups,
        )
        # Channels are the last axis of all that is here.
        pairs = zip(
            jnp.split(first, form.groups, axis=-1),
            jnp.split(second, form.groups, axis=-1),
            strict=True,
        )
        return jnp.concatenate([operation(*pair, one) for pair in pairs], axis=-1)

    return over_groups


def _columns(x: Array, form: Form) -> Array:
    """The pixels under each window: [B, H', W', h * w * I], in the kernel's order."""
    return jnp.concatenate(shift(x, form.window), axis=-1)


def _turn(form: Form) -> Form:
    """The convolution that takes slopes to gradients in the images."""
    last = [n - 1 for n in reach(form.window)]
    before, behind = (
        (end - pads[0], end - pads[1])
        for end, pads in zip(last, form.window.padding, strict=True)
    )
    return form._replace(
        window=form.window._replace(padding=(before, behind)),
        image=form.slope,
        channels=form.outputs,
        outputs=form.channels,
    )


def _slid(images: Array, kernel: Array, form: Form) -> Array:
    """The kernel over images that are padded, a step of it a pixel of the window."""
    return lax.conv_general_dilated(
        images,
        kernel,
        window_strides=(1, 1),
        padding="VALID",
        dimension_numbers=NUMBERS,
        precision=form.precision,
    )


def _bytes(array: Array) -> int:
    return array.size * array.dtype.itemsize


OURS: dict[str, Operation] = {
    "forward": _in_groups(forward),
    "by_images": _in_groups(by_images),
    "by_kernel": _in_groups(by_kernel),
}
BY_LAX: dict[str, Operation] = {
    "forward": by_lax,
    "by_images": partial(image_gradient, by_lax),
    "by_kernel": partial(kernel_gradient, by_lax),
}
