"""The forms in which a convolution and its two gradients are computed.

`OURS` and `BY_LAX` hold "forward" of (x, kernel), "by_images" of (slope, kernel) and
"by_kernel" of (x, slope), each of which also takes the `Form`. Tiles are chosen where
they take fewer products and numbers have 32 bits: 20 images of 32x32 pixels with 64
channels take 29.1 ms by tiles and 50.0 ms by XLA's form (experiments/speed/REPORT.md).
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
# So few channels fill no vector of XLA's convolution, which has a form for one channel.
FEW_CHANNELS = range(2, 16)
# Bytes of a slope that outgrows a core's cache, which is read block by block.
LARGE = 1_500_000
BLOCK = 400_000
# Results along an axis of a tile, by kernel size; larger tiles would round more.
TILES = {(3, 3): (2, 4), (5, 5): (2,)}
# With fewer, the transforms take as long as the products that they save.
LEAST_CHANNELS = 16
Operation = Callable[..., Array]


def by_lax(x: Array, kernel: Array, form: Form) -> Array:
    """Computes XLA's convolution."""
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
    """Multiplies pixels under each window, [B, H', W', h * w * I], by the kernel."""
    columns = _columns(x, form)
    flat = kernel.reshape(-1, form.outputs)
    return jnp.matmul(columns, flat, precision=form.precision)


def by_channel(x: Array, kernel: Array, form: Form) -> Array:
    """Filters each channel: one multiplication and addition for each window pixel."""
    weights = kernel.reshape(-1, form.channels)
    # Summed in the order of the window's pixels, one after another.
    terms = map(jnp.multiply, shift(x, form.window), weights)
    return reduce(jnp.add, terms)


def image_gradient(
    forward: Operation, slope: Array, kernel: Array, form: Form
) -> Array:
    """Lets JAX derive the gradient in the images of one of the forms above."""
    shape = (len(slope), *form.image, form.channels)
    images = jax.ShapeDtypeStruct(shape, slope.dtype)
    transpose = jax.linear_transpose(lambda x: forward(x, kernel, form), images)
    (gradient,) = transpose(slope)
    return gradient


def kernel_gradient(forward: Operation, x: Array, slope: Array, form: Form) -> Array:
    """Lets JAX derive the gradient in the kernel of one of the forms above."""
    kernel = jax.ShapeDtypeStruct(form.kernel, x.dtype)
    transpose = jax.linear_transpose(lambda kernel: forward(x, kernel, form), kernel)
    (gradient,) = transpose(slope)
    return gradient


def columns_kernel(x: Array, slope: Array, form: Form) -> Array:
    """Computes the kernel's gradient as (dY^T X)^T, faster on a CPU than X^T dY.

    The barrier keeps XLA from folding the transposition back into the product.
    """
    columns = _columns(x, form)
    # Windows of all images are one axis, so one product sums over both.
    dy = slope.reshape(-1, form.outputs)
    flat = columns.reshape(-1, columns.shape[-1])
    product = jnp.matmul(dy.T, flat, precision=form.precision)
    transposed = lax.optimization_barrier(product)
    return transposed.T.reshape(*form.window.size, form.channels, form.outputs)


def convolve_slope(
    forward: Operation, slope: Array, kernel: Array, form: Form
) -> Array:
    """Computes the gradient in the images by a convolution, for strides of 1."""
    flipped = kernel[::-1, ::-1].transpose(0, 1, 3, 2)
    return forward(slope, flipped, _turn(form))


def convolve_channels(x: Array, slope: Array, form: Form) -> Array:
    """Computes the gradient in the kernel by a convolution, for strides of 1.

    It convolves x as [I, H, W, B] with the slope as a kernel [H', W', B, O], which is
    the only form that XLA's CPU convolution is fast at, within a loop.
    """
    images = pad_images(x, form.window.padding).transpose(3, 1, 2, 0)
    kernel = slope.transpose(1, 2, 0, 3)
    rows = len(kernel)
    # The slope is read once a channel, so blocks of its rows stay in the cache.
    step = rows
    size = _bytes(slope)
    if size > LARGE:
        step = max(1, rows * BLOCK // size)
    behind = reach(form.window)[0] - 1
    gradients = []
    for row in range(0, rows, step):
        block = kernel[row : row + step]
        seen = images[:, row : row + len(block) + behind]
        gradients.append(_slide(seen, block, form))
    return reduce(jnp.add, gradients).transpose(1, 2, 0, 3)


def forward(x: Array, kernel: Array, form: Form) -> Array:
    """Computes the convolution in the form that is fast."""
    size = tile_size(form, x)
    if size:
        return tiles.forward(x, kernel, form, size)
    fast = _choose_form(form)
    if fast is by_channel:
        parts = _by_part(lambda part: by_channel(part, kernel, form), x)
        return parts.reshape(-1, *parts.shape[2:])
    return fast(x, kernel, form)


def by_images(slope: Array, kernel: Array, form: Form) -> Array:
    """Computes the gradient in the images in the form that is fast."""
    if tile_size(_turn(form), slope):
        return convolve_slope(forward, slope, kernel, form)
    fast = _choose_form(form)
    # The product reads large images once.
    if fast is by_lax and _bytes(slope) <= LARGE:
        return convolve_slope(by_lax, slope, kernel, form)
    if fast is by_lax:
        fast = by_columns
    return image_gradient(fast, slope, kernel, form)


def by_kernel(x: Array, slope: Array, form: Form) -> Array:
    """Computes the gradient in the kernel in the form that is fast."""
    size = tile_size(form, x)
    if size:
        return tiles.by_kernel(x, slope, form, size)
    fast = _choose_form(form)
    if fast is by_lax:
        return convolve_channels(x, slope, form)
    if fast is by_columns:
        return columns_kernel(x, slope, form)

    def part_gradient(part: tuple[Array, Array]) -> Array:
        # The sum over pixels is in float32 at least: 16 bits would keep eight of it.
        wide = jnp.promote_types(x.dtype, jnp.float32)
        images, slopes = (array.astype(wide) for array in part)
        return kernel_gradient(fast, images, slopes, form)

    return _by_part(part_gradient, (x, slope)).sum(0).astype(x.dtype)


def _by_part(operation: Callable[[Any], Array], batch: Any) -> Array:
    """Applies the operation to each part of a batch, in a loop.

    A loop takes finished arrays. Otherwise XLA computes the images again for each pixel
    of a window that sees them, and a step of MobileNet takes a sixth longer.
    """
    size = len(jax.tree.leaves(batch)[0])
    # Few parts, because each iteration costs time; an empty batch is one part.
    parts = next((n for n in range(2, size) if size % n == 0), max(size, 1))
    stacked = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), batch)
    return lax.map(operation, stacked)


def tile_size(form: Form, images: Array) -> int | None:
    """Chooses the results along an axis of a tile; None for no tiles."""
    few = min(form.channels, form.outputs) < LEAST_CHANNELS
    floating = jnp.issubdtype(images.dtype, jnp.floating)
    # Sums of values at the points would lose the digits of 16 bits.
    exact = floating and images.dtype.itemsize >= 4
    if few or not exact or _choose_form(form) is not by_lax:
        return None
    batch = len(images)
    products = batch * math.prod(form.slope) * math.prod(form.window.size)
    costs: dict[int | None, int] = {None: products}
    for size in TILES.get(form.window.size, ()):
        costs[size] = tiles.cost(form, batch, size)
    return min(costs, key=costs.__getitem__)


def _choose_form(form: Form) -> Operation:
    """Chooses the form of a convolution without groups, or by channel."""
    if form.groups > 1:
        return by_channel
    if form.columns or form.channels in FEW_CHANNELS or not _slides(form):
        return by_columns
    return by_lax


def _slides(form: Form) -> bool:
    """Whether XLA's fast convolution suits it and both of its gradients."""
    window = form.window
    # With dilation, columns take two thirds to six sevenths of its time.
    if window.strides != (1, 1) or window.dilation != (1, 1) or window.size == (1, 1):
        return False
    axes = zip(form.image, form.slope, reach(window), window.padding, strict=True)
    # It is slow where the kernel is larger than the image. No padding may be negative,
    # not even that of a gradient.
    return all(
        covered <= min(size, of_slope) and min(pad) >= 0 and max(pad) < covered
        for size, of_slope, covered, pad in axes
    )


def _in_groups(operation: Operation) -> Operation:
    """Applies the operation to each group, except for groups of a single channel."""

    def over_groups(first: Array, second: Array, form: Form) -> Array:
        if form.groups == 1 or form.groups == form.channels == form.outputs:
            return operation(first, second, form)
        form_of_group = form._replace(
            groups=1,
            channels=form.channels // form.groups,
            outputs=form.outputs // form.groups,
        )
        # Channels are the last axis of images, slopes and kernels.
        pairs = zip(
            jnp.split(first, form.groups, axis=-1),
            jnp.split(second, form.groups, axis=-1),
            strict=True,
        )
        return jnp.concatenate(
            [operation(*pair, form_of_group) for pair in pairs], axis=-1
        )

    return over_groups


def _columns(x: Array, form: Form) -> Array:
    """Gathers the pixels under each window, [B, H', W', h * w * I], in kernel order."""
    return jnp.concatenate(shift(x, form.window), axis=-1)


def _turn(form: Form) -> Form:
    """Makes the form of the convolution from slopes to gradients in the images."""
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


def _slide(images: Array, kernel: Array, form: Form) -> Array:
    """Slides the kernel over padded images, a step for each pixel of the window."""
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
