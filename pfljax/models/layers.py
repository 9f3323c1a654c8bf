"""Layers that several models share."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from pfljax.core import batch_rows
from pfljax.core.types import Array
from pfljax.core.unaveraged import UNSENT

Layer = Callable[..., Any]
XAVIER = nn.initializers.glorot_normal()
bare_dense = partial(nn.Dense, use_bias=False, kernel_init=XAVIER)


def flatten(x: Array) -> Array:
    """Rows [B, ...] as vectors [B, d]."""
    return x.reshape(x.shape[0], -1)


def add_channel(x: Array) -> Array:
    """Images [B, H, W] as [B, H, W, 1]; [B, H, W, C] as they are.

    Raises:
      ValueError: for rows that are not images.
    """
    if x.ndim not in (3, 4):
        raise ValueError(
            f"x has shape {x.shape}, expected images [B, H, W] or [B, H, W, C]; "
            "choose a model without convolutions for flat rows"
        )
    return x if x.ndim == 4 else x[..., None]


def mean_pixel(x: Array) -> Array:
    """Images [B, H, W, C] -> the mean over their pixels, [B, C].

    Raises:
      ValueError: for images of which nothing is left.
    """
    if not x.shape[1] * x.shape[2]:
        raise ValueError(
            f"images of {x.shape[1]}x{x.shape[2]} pixels are left before the head; "
            "choose a model with fewer strides or larger images"
        )
    return x.mean((1, 2))


def relu_layers(dense: Layer, widths: Sequence[int]) -> list[Layer]:
    """A dense layer and a ReLU for each width."""
    return [layer for width in widths for layer in (dense(width), nn.relu)]


class BatchNorm(nn.Module):
    """Normalises each channel by the rows of its batch, in prediction as well.

    torch's `track_running_stats=False`: what is made of a row depends on its batch.
    `pfljax.core.batch_rows` tells the batches, and the rows that only pad them.
    """

    bias: str = "bias"  # the name of that parameter

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Images [B, H, W, C], each channel of mean 0 and variance 1, then affine."""
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias = self.param(self.bias, nn.initializers.zeros, x.shape[-1:])
        mask, size = batch_rows.told() or (jnp.ones(len(x)), len(x))
        own = x.reshape(len(x) // size, size, *x.shape[1:])
        weight = mask.reshape(len(x) // size, size, 1, 1, 1)
        pixels = x.shape[1] * x.shape[2]
        count = jnp.maximum(weight.sum(1, keepdims=True), 1) * pixels

        def mean(y: Array) -> Array:
            return (weight * y).sum((1, 2, 3), keepdims=True) / count

        centred = own - mean(own)
        scaled = centred * lax.rsqrt(mean(centred**2) + 1e-5)
        return scaled.reshape(x.shape) * scale + bias


class GroupNorm(nn.Module):
    """Normalises 8 groups of channels (or gcd(8, C)) of each row on its own."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Images [B, H, W, C] -> the same shape."""
        return nn.GroupNorm(num_groups=math.gcd(8, x.shape[-1]))(x)


NORMS = {
    "group": GroupNorm,
    "batch": BatchNorm,
    "batch_superfed": partial(BatchNorm, UNSENT),  # the server has no bias
}
