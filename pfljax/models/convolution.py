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
    if conv not in CONVOLUTIONS:
        raise ValueError(f"conv is {conv!r}; choose one of {', '.join(CONVOLUTIONS)}")
    if conv == "auto":
        conv = "im2col" if jax.default_backend() == "cpu" else "lax"
    return im2col if conv == "im2col" else lax.conv_general_dilated


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
    _check(lhs, rhs, (lhs_dilation, rhs_dilation), feature_group_count)
    product = partial(
        jnp.matmul, precision=precision, preferred_element_type=preferred_element_type
    )
    columns = _patches(lhs, rhs.shape[:2], window_strides, padding)
    return _project(product, columns, rhs.reshape(-1, rhs.shape[-1]))


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
    dy = slope.reshape(-1, slope.shape[-1])
    x = columns.reshape(-1, columns.shape[-1])
    kernel_transposed = lax.optimization_barrier(product(dy.T, x))
    by_columns = product(slope, kernel.T).astype(columns.dtype)
    return by_columns, kernel_transposed.T.astype(kernel.dtype)


_project.defvjp(_project_forward, _project_backward)


def max_pool(x: Array, pad: int = 0) -> Array:
    """Maximum of each 2x2 square: [B, H, W, C] -> [B, (H + 2 pad) // 2, ..., C].

    `pad` adds rows and columns of -inf on every side, as torch does; an odd last row
    or column is dropped.

    Raises:
      ValueError: for an image of fewer than 2x2 pixels.
    """
    if pad:
        sides = ((0, 0), (pad, pad), (pad, pad), (0, 0))
        x = jnp.pad(x, sides, constant_values=-jnp.inf)
    batch_size, h, w, channels = x.shape
    if min(h, w) < 2:
        raise ValueError(
            f"max_pool got an image of {h}x{w} pixels, expected 2x2 or more; "
            "choose a model with fewer pools or larger images"
        )
    rows = h // 2
    columns = w // 2
    even = x[:, : 2 * rows, : 2 * columns]
    squares = even.reshape(batch_size, rows, 2, columns, 2, channels)
    return squares.max((2, 4))


def window_max(x: Array, *, size: int, stride: int, pad: int) -> Array:
    """Maximum of each square of `size` pixels: [B, H, W, C] -> [B, H', W', C].

    `pad` adds rows and columns of -inf on every side.
    """
    sides = [(pad, pad)] * 2
    shifted = _shifted(x, (size, size), (stride, stride), sides, fill=-jnp.inf)
    return reduce(jnp.maximum, shifted)


def depthwise(x: Array, kernel: Array, stride: int, pad: int = 0) -> Array:
    """Each channel [B, H, W, C] under its own filter [h, w, 1, C]."""
    sides = [(pad, pad)] * 2
    shifted = _shifted(x, kernel.shape[:2], (stride, stride), sides)
    weights = kernel.reshape(-1, kernel.shape[-1])
    seen = (pixels * w for pixels, w in zip(shifted, weights, strict=True))
    return reduce(jnp.add, seen)


def _patches(
    x: Array,
    window: Sequence[int],
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
) -> Array:
    """The pixels under each window: [B, H', W', h * w * I], in the kernel's order."""
    return jnp.concatenate(_shifted(x, window, strides, padding), axis=-1)


def _shifted(
    x: Array,
    window: Sequence[int],
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    fill: float = 0.0,
) -> list[Array]:
    """What each pixel of the window sees of the images, h * w times [B, H', W', I]."""
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(x.shape[1:3], window, strides, padding)
    sides = ((0, 0), *map(tuple, padding), (0, 0))
    x = jnp.pad(x, sides, constant_values=fill)
    rows = _starts(x.shape[1], window[0], strides[0])
    columns = _starts(x.shape[2], window[1], strides[1])
    return [x[:, row, column] for row in rows for column in columns]


def _starts(size: int, width: int, stride: int) -> list[slice]:
    """Along one axis: what each pixel of a window sees, window after window."""
    last = size - width + 1
    return [slice(start, start + last, stride) for start in range(width)]


def _check(lhs: Array, rhs: Array, dilations: tuple[Any, Any], groups: int) -> None:
    if lhs.ndim != 4 or rhs.ndim != 4:
        raise ValueError(
            f"im2col got inputs {lhs.shape} and a kernel {rhs.shape}, expected "
            "[B, H, W, I] and [h, w, I, O]; use conv='lax'"
        )
    if groups != 1:
        raise ValueError(
            f"im2col got feature_group_count={groups}, expected 1; use conv='lax'"
        )
    if any(step != 1 for dilation in dilations for step in dilation or ()):
        raise ValueError(f"im2col got dilations {dilations}; use conv='lax'")
