"""Convolution of tiles: fewer products than a kernel has pixels (Winograd's).

A tile of m x m results takes (m + r - 1)^2 products a channel instead of m^2 r^2: 36
instead of 144 for a 3x3 kernel, and 36 instead of 100 for a 5x5 kernel. Along an axis,
m slopes and r weights are coefficients of two polynomials, whose product has n = m + r
- 1. Polynomials are multiplied by their values at n points; a convolution is the
transpose of that product.
The axes are treated one after the other: Lavin, Gray, CVPR 2016,
https://arxiv.org/abs/1509.09308. In their Y = A^T [(G g G^T) * (B^T d B)] A, A is
`slope`, G `kernel` and B `product`. The points are those that round least, of Barabasz
et al., ACM TOMS 2020, https://arxiv.org/abs/1803.10986.

Windows are square, strides and dilations are 1 and padding is 0 or more. A number that
is not finite, or a million times larger than its neighbours, changes its whole tile.
Below, n * n counts the points, and `tiles` the tiles of all images.
"""

from collections.abc import Sequence
from functools import cache, reduce
from math import ceil
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from pfljax.core.types import Array
from pfljax.models.windows import Form, Window, pad_images, pixel_slices

POINTS = (0.0, 1.0, -1.0, 0.5, -2.0)  # and infinity
# A weight is transformed and read in the time of so many products (measured).
WEIGHT = 100


class Transform(NamedTuple):
    """The matrices from coefficients to values at the points, and back."""

    slope: np.ndarray  # [n, m]
    kernel: np.ndarray  # [n, r]
    product: np.ndarray  # [n, n], from values to coefficients


@cache
def transform(size: int, pixels: int) -> Transform:
    """Makes the matrices of tiles with `size` results and a kernel of `pixels`."""
    count = size + pixels - 1
    points = np.array(POINTS[: count - 1])

    def values(coefficients: int) -> np.ndarray:
        powers = np.vander(points, coefficients, increasing=True)
        at_infinity = np.eye(coefficients)[-1]
        return np.vstack([powers, at_infinity])

    # A zero that is rounded to another number would cost a product.
    product = np.round(np.linalg.inv(values(count)), 12)
    return Transform(values(size), values(pixels), product)


def cost(form: Form, batch: int, size: int) -> int:
    """Counts the products of a batch for each pair of channels, with its weights."""
    h, w = _tiles(form, size)
    points = (size + form.window.size[0] - 1) ** 2
    return points * (batch * h * w + WEIGHT)


def forward(x: Array, kernel: Array, form: Form, size: int) -> Array:
    """Convolves images [B, H, W, I] with [r, r, I, O], by tiles of `size`."""
    matrices = transform(size, form.window.size[0])
    values = _both_axes(
        matrices.kernel, kernel.reshape(-1, form.channels * form.outputs)
    )
    kernels = values.reshape(-1, form.channels, form.outputs)
    products = jnp.matmul(_images(x, form, size), kernels, precision=form.precision)
    return _results(products, form, size)


def by_kernel(x: Array, slope: Array, form: Form, size: int) -> Array:
    """Computes the gradient [r, r, I, O] in the kernel, from slopes [B, H', W', O]."""
    matrices = transform(size, form.window.size[0])
    products = jnp.einsum(
        "nti,nto->nio",
        _images(x, form, size),
        _slopes(slope, form, size),
        precision=form.precision,
    )
    gradient = _both_axes(matrices.kernel.T, products.reshape(len(products), -1))
    return gradient.reshape(form.kernel)


def _images(x: Array, form: Form, size: int) -> Array:
    """Computes the values of the pixels that each tile sees, [n * n, tiles, I]."""
    matrix = transform(size, form.window.size[0]).product.T
    count = len(matrix)
    axes = zip(form.image, form.window.padding, _tiles(form, size), strict=True)
    # The padding behind reaches as far as the last tile sees.
    rows, columns = (
        (before, (tiles - 1) * size + count - before - pixels)
        for pixels, (before, _), tiles in axes
    )
    x = pad_images(x, (rows, columns))
    sees = Window(size=(count, count), strides=(size, size))
    seen_columns = [
        x[:, :, pixels] for pixels in pixel_slices(x.shape[2], sees, axis=1)
    ]
    of_columns = _combine(matrix, seen_columns)
    seen_rows = [
        of_columns[:, :, pixels] for pixels in pixel_slices(x.shape[1], sees, axis=0)
    ]
    both = _combine(matrix, seen_rows)
    return both.reshape(count * count, -1, form.channels)


def _slopes(slope: Array, form: Form, size: int) -> Array:
    """Computes the values of the slopes in each tile, [n * n, tiles, O]."""
    matrix = transform(size, form.window.size[0]).slope
    h, w = _tiles(form, size)
    rows, columns = form.slope
    missing_rows = h * size - rows
    missing_columns = w * size - columns
    whole = pad_images(slope, ((0, missing_rows), (0, missing_columns)))
    by_tile = whole.reshape(-1, h, size, w, size, form.outputs)
    columns_of_tiles = jnp.unstack(by_tile, axis=4)
    of_columns = _combine(matrix, columns_of_tiles)
    rows_of_tiles = jnp.unstack(of_columns, axis=3)
    both = _combine(matrix, rows_of_tiles)
    return both.reshape(len(matrix) ** 2, -1, form.outputs)


def _results(products: Array, form: Form, size: int) -> Array:
    """The results of all tiles, put together: [B, H', W', O]."""
    matrix = transform(size, form.window.size[0]).slope.T
    results = _both_axes(matrix, products.reshape(len(products), -1))
    h, w = _tiles(form, size)
    by_tile = results.reshape(size, size, -1, h, w, form.outputs)
    in_order = by_tile.transpose(2, 3, 0, 4, 1, 5)
    whole = in_order.reshape(-1, h * size, w * size, form.outputs)
    rows, columns = form.slope
    return whole[:, :rows, :columns]


def _tiles(form: Form, size: int) -> tuple[int, int]:
    """Counts tiles along rows and columns; the last may have fewer results."""
    h, w = (ceil(results / size) for results in form.slope)
    return h, w


def _both_axes(matrix: np.ndarray, a: Array) -> Array:
    """Multiplies rows and columns of a tile, the first axis of `a`, by the matrix."""
    return jnp.matmul(np.kron(matrix, matrix).astype(a.dtype), a)


def _combine(matrix: np.ndarray, parts: Sequence[Array]) -> Array:
    """Multiplies an axis that comes in parts by the matrix; it becomes the first axis.

    These are sums, which on a CPU are faster than a product where the parts overlap.
    """
    sums = []
    for row in matrix:
        weighed = zip(row, parts, strict=True)
        terms = (float(weight) * part for weight, part in weighed if weight)
        sums.append(reduce(jnp.add, terms))
    return jnp.stack(sums)
