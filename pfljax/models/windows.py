"""Windows that slide over images, and the pixels under them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from pfljax.core.types import Array

Sides = tuple[tuple[int, int], tuple[int, int]]


class Window(NamedTuple):
    """A window over images; each pair is of rows and columns."""

    size: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: Sides = ((0, 0), (0, 0))  # before and behind
    dilation: tuple[int, int] = (1, 1)  # of the window's own pixels


class Form(NamedTuple):
    """The static parameters of a convolution."""

    window: Window
    image: tuple[int, int]  # rows and columns
    channels: int
    outputs: int
    groups: int = 1
    precision: Any = None
    columns: bool = False  # by matrix products on every platform

    @property
    def kernel(self) -> tuple[int, ...]:
        """The kernel's shape [h, w, I / groups, O]."""
        return (*self.window.size, self.channels // self.groups, self.outputs)

    @property
    def slope(self) -> tuple[int, int]:
        """Rows and columns of the convolution's results."""
        covered = reach(self.window)
        steps = self.window.strides
        before_and_behind = self.window.padding
        sizes = zip(self.image, before_and_behind, covered, steps, strict=True)
        h, w = ((size + sum(pad) - last) // step + 1 for size, pad, last, step in sizes)
        return h, w


def reach(window: Window) -> tuple[int, int]:
    """Counts the rows and columns from a window's first pixel to its last."""
    h, w = ((n - 1) * d + 1 for n, d in zip(window.size, window.dilation, strict=True))
    return h, w


def resolve_sides(
    padding: str | Sequence[tuple[int, int]], image: Sequence[int], window: Window
) -> Sides:
    """Converts the padding "SAME", "VALID" or pairs to pairs."""
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(image, reach(window), window.strides, padding)
    rows, columns = padding
    return (rows[0], rows[1]), (columns[0], columns[1])


def all_sides(pad: int) -> Sides:
    """Pads by `pad` before and behind the rows and the columns."""
    return (pad, pad), (pad, pad)


def pad_images(x: Array, sides: Sides, fill: float = 0.0) -> Array:
    """Adds rows and columns of `fill` to images [B, H, W, C]."""
    rows, columns = sides
    return jnp.pad(x, ((0, 0), rows, columns, (0, 0)), constant_values=fill)


def shift(x: Array, window: Window, fill: float = 0.0) -> list[Array]:
    """Returns, for each of the window's h * w pixels, the images that it sees.

    Each is [B, H', W', C].
    """
    x = pad_images(x, window.padding, fill)
    rows = pixel_slices(x.shape[1], window, axis=0)
    columns = pixel_slices(x.shape[2], window, axis=1)
    # Row by row, as a kernel [h, w, I, O] lies in memory.
    return [x[:, row, column] for row in rows for column in columns]


def pixel_slices(length: int, window: Window, axis: int) -> list[slice]:
    """Returns, along one axis, the slice that each pixel of a window sees."""
    last = length - reach(window)[axis] + 1
    offsets = (n * window.dilation[axis] for n in range(window.size[axis]))
    step = window.strides[axis]
    return [slice(offset, offset + last, step) for offset in offsets]
