"""Pooling of images by slices, which stay fast in loops and under `vmap`."""

from functools import reduce

import jax.numpy as jnp

from pfljax.core.types import Array
from pfljax.models.windows import Window, all_sides, pad_images, shift


def max_pool(x: Array, pad: int = 0) -> Array:
    """Takes the maximum of each 2x2 square of images [B, H, W, C].

    The result is [B, (H + 2 pad) // 2, (W + 2 pad) // 2, C]. `pad` adds rows and
    columns of -inf on every side, as torch does; an odd last row or column is dropped.

    Raises:
      ValueError: an image has fewer than 2x2 pixels.
    """
    if pad:
        sides = all_sides(pad)
        x = pad_images(x, sides, fill=-jnp.inf)
    batch_size, h, w, channels = x.shape
    if min(h, w) < 2:
        raise ValueError(
            f"max_pool got an image of {h}x{w} pixels, expected 2x2 or more; "
            "choose a model with fewer pools or larger images"
        )
    rows = h // 2
    columns = w // 2
    even = x[:, : 2 * rows, : 2 * columns]
    # Squares do not overlap, so they are axes 2 and 4: the gradient needs no scatter.
    squares = even.reshape(batch_size, rows, 2, columns, 2, channels)
    return squares.max(axis=(2, 4))


def window_max(x: Array, *, size: int, stride: int, pad: int) -> Array:
    """Takes the maximum of each square of `size` pixels of images [B, H, W, C].

    `pad` adds rows and columns of -inf on every side.
    """
    window = Window(
        size=(size, size),
        strides=(stride, stride),
        padding=all_sides(pad),
    )
    return reduce(jnp.maximum, shift(x, window, fill=-jnp.inf))
