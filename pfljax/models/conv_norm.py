"""What ResNets, MobileNet v2 and GoogLeNet are made of, in torchvision's layout.

https://github.com/pytorch/vision/tree/main/torchvision/models. Each convolution is
followed by a normalisation, and so has no bias.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, NamedTuple

from flax import linen as nn

from pfljax import registry
from pfljax.core.types import Array
from pfljax.models.convolution import conv_for_platform
from pfljax.models.dropout import Dropout
from pfljax.models.feature_pooling import pool_features
from pfljax.models.layers import NORMS, Layer, mean_pixel, relu_layers

DropRate = Annotated[float, registry.BELOW_ONE]
# He et al., ICCV 2015, https://arxiv.org/abs/1502.01852, of the backward pass.
KAIMING_FAN_OUT = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


class ConvNorm(NamedTuple):
    """What the convolutions of a network have in common."""

    norm: str
    conv: str
    kernel_init: Callable[..., Array] = KAIMING_FAN_OUT

    def layers(
        self, channels: int, *, size: int = 1, stride: int = 1, groups: int = 1
    ) -> list[Layer]:
        """A square convolution and its normalisation.

        Images keep their size, but for the stride.
        """
        norm = registry.find("norm", NORMS, self.norm)
        convolution = nn.Conv(
            channels,
            kernel_size=(size, size),
            strides=stride,
            padding=size // 2,
            feature_group_count=groups,
            use_bias=False,
            kernel_init=self.kernel_init,
            conv_general_dilated=conv_for_platform(self.conv),
        )
        return [convolution, norm()]


def pooled(features: int | None, dropout: float = 0.0) -> list[Layer]:
    """The mean over pixels, dropout, and a pool to so many features.

    `features` is None: as many as there are.
    """
    layers: list[Layer] = [mean_pixel]
    if dropout:
        layers.append(Dropout(dropout))
    if features is not None:
        layers.append(partial(pool_features, width=features))
    return layers


def dense_head(num_classes: int, hidden: Sequence[int] = ()) -> nn.Module:
    """A ReLU layer for each of `hidden`, then the logits."""
    logits = nn.Dense(num_classes)
    if not hidden:
        return logits
    return nn.Sequential([*relu_layers(nn.Dense, hidden), logits])


def in_eights(channels: int, width: float) -> int:
    """`width` * channels as a multiple of 8, which is 90 % of it or more."""
    scaled = width * channels
    rounded = max(8, int(scaled + 4) // 8 * 8)
    if rounded < 0.9 * scaled:
        rounded += 8
    return rounded
