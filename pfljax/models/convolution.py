"""Convolution and pooling that stay fast under a client axis and in loops.

XLA's CPU convolution is about twenty times slower inside a loop, and a `vmap` over
clients makes grouped convolutions of per-client kernels. `im2col` is slices, one
concatenation and one matrix product: nothing of that happens to it.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from pfljax import registry
from pfljax.core.types import Array

CONVOLUTIONS = ("auto", "im2col", "lax")
Product = Callable[..., Array]


def conv_for_platform(conv: str = "auto") -> Callable[..., Array]:
    """The convolution for `nn.Conv(conv_general_dilated=...)`.

    Args:
      conv: "im2col", "lax", or "auto": im2col on CPU, lax elsewhere.

    Raises:
      ValueError: for another name.
    """
    registry.require_known("conv", conv, CONVOLUTIONS)
    automatic = conv == "auto"
    # It holds each pixel h * w times: worth it where convolutions in loops are slow.
    on_cpu = jax.default_backend() == "cpu"
    if conv == "im2col" or (automatic and on_cpu):
        return im2col
    return lax.conv_general_dilated


def im2col(
    lhs: Array,
    rhs: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    *,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Convolution of images [B, H, W, I] with a kernel [h, w, I, O]: [B, H', W', O].

    Takes the arguments of `lax.conv_general_dilated`, and is always NHWC and HWIO as
    Flax calls it: `dimension_numbers` is not read.

    Raises:
      ValueError: for groups, dilation, or inputs that are not two-dimensional images.
    """
    _check_shapes(lhs, rhs)
    _check_form(
        groups=feature_group_count,
        dilations=(lhs_dilation, rhs_dilation),
    )
    product = partial(
        jnp.matmul,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    window = rhs.shape[:2]
    outputs = rhs.shape[-1]
    columns = _patches(lhs, window, window_strides, padding)
    kernel = rhs.reshape(-1, outputs)
    return _project(product, columns, kernel)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _project(product: Product, columns: Array, kernel: Array) -> Array:
    """columns [..., d] times kernel [d, O], with a gradient in the faster order."""
    return product(columns, kernel)


def _project_forward(product: Product, columns: Array, kernel: Array) -> Any:
    return product(columns, kernel), (columns, kernel)


def _project_backward(product: Product, saved: Any, slope: Array) -> Any:
    """The kernel's gradient as (dY^T X)^T, faster on CPU than X^T dY.

    The barrier keeps XLA from folding the transposition back into the product.
    """
    columns, kernel = saved
    # One row a window, over all images: one product sums over both.
    dy = slope.reshape(-1, slope.shape[-1])
    x = columns.reshape(-1, columns.shape[-1])
    transposed = lax.optimization_barrier(product(dy.T, x))
    by_columns = product(slope, kernel.T)
    # A product may come in a wider type, `preferred_element_type`.
    by_columns = by_columns.astype(columns.dtype)
    by_kernel = transposed.T.astype(kernel.dtype)
    return by_columns, by_kernel


_project.defvjp(_project_forward, _project_backward)


def max_pool(x: Array, pad: int = 0) -> Array:
    """Maximum of each 2x2 square: [B, H, W, C] -> [B, (H + 2 pad) // 2, ..., C].

    `pad` adds rows and columns of -inf on every side, as torch does; an odd last row
    or column is dropped.

    Raises:
      ValueError: for an image of fewer than 2x2 pixels.
    """
    if pad:
        sides = _all_sides(pad)
        x = _padded(x, sides, fill=-jnp.inf)
    batch_size, h, w, channels = x.shape
    if min(h, w) < 2:
        raise ValueError(
            f"max_pool got an image of {h}x{w} pixels, expected 2x2 or more; "
            "choose a model with fewer pools or larger images"
        )
    rows = h // 2
    columns = w // 2
    even = x[:, : 2 * rows, : 2 * columns]
    # Squares do not overlap: axes 2 and 4, whose gradient needs no scatter.
    squares = even.reshape(batch_size, rows, 2, columns, 2, channels)
    return squares.max(axis=(2, 4))


def window_max(x: Array, *, size: int, stride: int, pad: int) -> Array:
    """Maximum of each square of `size` pixels: [B, H, W, C] -> [B, H', W', C].

    `pad` adds rows and columns of -inf on every side.
    """
    shifted = _shifted(
        x,
        window=(size, size),
        strides=(stride, stride),
        padding=_all_sides(pad),
        fill=-jnp.inf,
    )
    return reduce(jnp.maximum, shifted)


def depthwise(x: Array, kernel: Array, stride: int, pad: int = 0) -> Array:
    """Each channel [B, H, W, C] under its own filter [h, w, 1, C]."""
    shifted = _shifted(
        x,
        window=kernel.shape[:2],
        strides=(stride, stride),
        padding=_all_sides(pad),
    )
    channels = kernel.shape[-1]
    weights = kernel.reshape(-1, channels)
    # Summed in the order of the window's pixels, one after another.
    terms = map(jnp.multiply, shifted, weights)
    return reduce(jnp.add, terms)


def _patches(
    x: Array,
    window: Sequence[int],
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
) -> Array:
    """The pixels under each window: [B, H', W', h * w * I], in the kernel's order."""
    shifted = _shifted(x, window, strides, padding)
    return jnp.concatenate(shifted, axis=-1)


def _shifted(
    x: Array,
    window: Sequence[int],
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    fill: float = 0.0,
) -> list[Array]:
    """What each pixel of the window sees of the images, h * w times [B, H', W', I]."""
    if isinstance(padding, str):
        image = x.shape[1:3]
        padding = lax.padtype_to_pads(image, window, strides, padding)
    x = _padded(x, padding, fill)
    h, w = x.shape[1:3]
    rows = _starts(h, window[0], strides[0])
    columns = _starts(w, window[1], strides[1])
    # Row by row, as a kernel [h, w, I, O] lies in memory.
    return [x[:, row, column] for row in rows for column in columns]


def _starts(size: int, width: int, stride: int) -> list[slice]:
    """Along one axis: what each pixel of a window sees, window after window."""
    last = size - width + 1
    return [slice(start, start + last, stride) for start in range(width)]


def _all_sides(pad: int) -> Sequence[tuple[int, int]]:
    """The same padding before and behind the rows, and the columns."""
    return ((pad, pad), (pad, pad))


def _padded(x: Array, padding: Sequence[tuple[int, int]], fill: float) -> Array:
    """Images [B, H, W, C] with rows and columns of `fill` on their sides."""
    none = (0, 0)
    rows, columns = padding
    sides = (none, tuple(rows), tuple(columns), none)
    return jnp.pad(x, sides, constant_values=fill)


def _check_shapes(lhs: Array, rhs: Array) -> None:
    if lhs.ndim != 4 or rhs.ndim != 4:
        raise ValueError(
            f"im2col got inputs {lhs.shape} and a kernel {rhs.shape}, expected "
            "[B, H, W, I] and [h, w, I, O]; use conv='lax'"
        )


def _check_form(groups: int, dilations: Sequence[Sequence[int] | None]) -> None:
    if groups != 1:
        raise ValueError(
            f"im2col got feature_group_count={groups}, expected 1; use conv='lax'"
        )
    for dilation in dilations:
        if dilation is not None and any(step != 1 for step in dilation):
            raise ValueError(f"im2col got dilations {dilations}; use conv='lax'")
