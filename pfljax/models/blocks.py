"""Blocks of ResNets, MobileNets and GoogLeNet, in torchvision's layout.

https://github.com/pytorch/vision/tree/main/torchvision/models.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, NamedTuple

from flax import linen as nn

from pfljax.core import ranges, requirements
from pfljax.core.types import Array
from pfljax.models.convolution import conv_layer
from pfljax.models.dropout import Dropout
from pfljax.models.feature_pooling import pool_features
from pfljax.models.layers import NORMS, mean_pixel
from pfljax.models.network import Layer

DropRate = Annotated[float, ranges.BELOW_ONE]
# He et al., ICCV 2015, https://arxiv.org/abs/1502.01852, of the backward pass.
KAIMING_FAN_OUT = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
LECUN = nn.initializers.lecun_normal()  # the default of Flax


class Residual(nn.Module):
    """The ReLU of a branch plus its input, which `skip` brings to the same shape."""

    branch: nn.Module
    skip: nn.Module | None  # None for the input itself

    def __call__(self, x: Array) -> Array:
        """Maps images [B, H, W, C] to [B, H', W', C']."""
        skipped = x
        if self.skip is not None:
            skipped = self.skip(x)
        return nn.relu(self.branch(x) + skipped)


class Form(NamedTuple):
    """The convolutions and normalisations of a network."""

    norm: str
    conv: str
    kernel_init: Callable[..., Array] = KAIMING_FAN_OUT
    use_bias: bool = False  # a bias before a normalisation is subtracted again

    def convolution(
        self, channels: int, *, size: int = 1, stride: int = 1, groups: int = 1
    ) -> nn.Module:
        """Makes a square convolution, which changes the size only by its stride."""
        convolution = conv_layer(
            self.conv,
            size,
            strides=stride,
            padding=size // 2,
            feature_group_count=groups,
            use_bias=self.use_bias,
            kernel_init=self.kernel_init,
        )
        return convolution(channels)

    def normalise(self, layer: Layer) -> list[Layer]:
        """Appends a normalisation to a layer."""
        return [layer, requirements.find("norm", NORMS, self.norm)()]

    def layers(
        self, channels: int, *, size: int = 1, stride: int = 1, groups: int = 1
    ) -> list[Layer]:
        """Makes a square convolution and its normalisation."""
        convolution = self.convolution(
            channels, size=size, stride=stride, groups=groups
        )
        return self.normalise(convolution)

    def residual(self, before: int, channels: int, stride: int) -> Residual:
        """Makes two 3x3 convolutions beside a skip, for images of `before` channels."""
        first = self.layers(channels, size=3, stride=stride)
        second = self.layers(channels, size=3)
        branch = nn.Sequential([*first, nn.relu, *second])
        return Residual(branch, self.skip(before, channels, stride))

    def skip(self, before: int, after: int, stride: int) -> nn.Module | None:
        """Makes a projection, or None if images keep their shape."""
        if before == after and stride == 1:
            return None
        return nn.Sequential(self.layers(after, stride=stride))


def pool_to(features: int | None, dropout: float = 0.0) -> list[Layer]:
    """Makes the mean over pixels, dropout, and a pool to this number of features.

    If `features` is None, they keep their number.
    """
    layers: list[Layer] = [mean_pixel]
    if dropout:
        layers.append(Dropout(dropout))
    if features is not None:
        layers.append(partial(pool_features, width=features))
    return layers


def in_eights(channels: int, width: float) -> int:
    """Rounds `width` * channels to a multiple of 8 that is at least 90 % of it."""
    scaled = width * channels
    rounded = max(8, int(scaled + 4) // 8 * 8)
    if rounded < 0.9 * scaled:
        rounded += 8
    return rounded
