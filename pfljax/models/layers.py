"""Layers that several models share."""

import math
from functools import partial

import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from pfljax.core.types import Array


def flatten(x: Array) -> Array:
    """Reshapes examples [B, ...] to vectors [B, d]."""
    return x.reshape(x.shape[0], -1)


def add_channel(x: Array) -> Array:
    """Reshapes images [B, H, W] to [B, H, W, 1]; [B, H, W, C] stay.

    Raises:
      ValueError: for examples that are not images, or whose channels come first.
    """
    if x.ndim not in (3, 4):
        raise ValueError(
            f"x has shape {x.shape}, expected images [B, H, W] or [B, H, W, C]; "
            "choose a model without convolutions for flat examples"
        )
    if x.ndim == 3:
        return x[..., None]
    if _are_channels_first(*x.shape[1:]):
        raise ValueError(
            f"x has shape {x.shape}, images of {x.shape[1]}x{x.shape[2]} pixels with "
            f"{x.shape[3]} channels; expected [B, H, W, C]: move the channels to the "
            "end, x.transpose(0, 2, 3, 1)"
        )
    return x


def _are_channels_first(h: int, w: int, c: int) -> bool:
    """Whether [H, W, C] can only be meant as [C, H, W]: 3, or 1 with a square."""
    return min(w, c) >= 8 and (h == 3 or (h == 1 and w == c))


def mean_pixel(x: Array) -> Array:
    """Averages images [B, H, W, C] over their pixels, [B, C].

    Raises:
      ValueError: for images of which nothing is left.
    """
    if not x.shape[1] * x.shape[2]:
        raise ValueError(
            f"images of {x.shape[1]}x{x.shape[2]} pixels are left before the head; "
            "choose a model with fewer strides or larger images"
        )
    return x.mean((1, 2))


class BatchNorm(nn.Module):
    """Normalises each channel by the examples of its batch, in prediction as well.

    It is torch's `track_running_stats=False`: outputs of an example depend on the batch
    that the model is applied to. Examples that only pad it do not count
    (`pfljax.models.batch_norm`).
    """

    @nn.compact
    def __call__(self, x: Array, mask: Array | None = None) -> Array:
        """Scales images [B, H, W, C] to mean 0 and variance 1 a channel, then affinely.

        `mask` is f32[B], 0 for an example that only pads the batch; None: all count.
        """
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:])
        counts = jnp.ones(len(x)) if mask is None else mask
        weight = counts[:, None, None, None]
        pixels = x.shape[1] * x.shape[2]
        # An empty batch divides by one: 0 / 0 would be NaN under any mask.
        count = jnp.maximum(counts.sum(), 1) * pixels

        def mean(y: Array) -> Array:
            total = (weight * y).sum((0, 1, 2))
            return total / count

        # The variance of what is centred: E x^2 - (E x)^2 cancels in f32.
        centred = x - mean(x)
        variance = mean(centred**2)
        scaled = centred * lax.rsqrt(variance + 1e-5)
        # Statistics are f32 whatever the images are; the outputs are of their type.
        return (scaled * scale + bias).astype(x.dtype)


class GroupNorm(nn.Module):
    """Normalises 8 groups of channels, or gcd(8, C), of each example."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Normalises images [B, H, W, C]."""
        channels = x.shape[-1]
        norm = nn.GroupNorm(num_groups=math.gcd(8, channels))
        return norm(x)


NORMS = {
    "group": GroupNorm,
    "batch": BatchNorm,
    "batch_running": partial(nn.BatchNorm, momentum=0.9),  # as torch's default
}
