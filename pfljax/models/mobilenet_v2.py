"""MobileNet v2, whose blocks widen images, filter each channel, and narrow them.

Sandler et al., CVPR 2018, https://arxiv.org/abs/1801.04381, in torchvision's layout,
with GroupNorm by default, as `convnets` says.
"""

from typing import NamedTuple

import jax
from flax import linen as nn

from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Positive
from pfljax.core.types import Array
from pfljax.models.blocks import DropRate, Form, in_eights, pool_to
from pfljax.models.layers import add_channel
from pfljax.models.network import Classes, Layer, network


class Stage(NamedTuple):
    """Blocks of equal channels; the stride is that of the first."""

    expansion: int
    channels: int
    blocks: int
    stride: int


# The paper's table 2.
STAGES = (
    Stage(expansion=1, channels=16, blocks=1, stride=1),
    Stage(expansion=6, channels=24, blocks=2, stride=2),
    Stage(expansion=6, channels=32, blocks=3, stride=2),
    Stage(expansion=6, channels=64, blocks=4, stride=2),
    Stage(expansion=6, channels=96, blocks=3, stride=1),
    Stage(expansion=6, channels=160, blocks=3, stride=2),
    Stage(expansion=6, channels=320, blocks=1, stride=1),
)
STEM = 32
LAST = 1280


class Skipped(nn.Module):
    """A branch plus its input, without a ReLU."""

    branch: nn.Module

    def __call__(self, x: Array) -> Array:
        """Maps images [B, H, W, C] to the same shape."""
        return x + self.branch(x)


@component
def mobilenet_v2(
    num_classes: Classes,
    *,
    width: Positive = 1.0,
    features: AtLeastOne | None = None,
    dropout: DropRate = 0.2,
    norm: str = "group",
    conv: str = "auto",
) -> nn.Module:
    """MobileNet v2 as torchvision has it: 2,236,682 parameters for 10 classes.

    Args:
      num_classes: number of classes.
      width: factor of all channels; below 1 the last 1280 stay.
      features: width that the 1280 features are pooled to; None for no pool.
      dropout: share of the 1280 features that training drops.
      norm: a name in `layers.NORMS`.
      conv: see `conv_for_platform`.
    """
    form = Form(norm, conv)
    before = in_eights(STEM, width)
    body: list[Layer] = [
        add_channel,
        *form.layers(before, size=3, stride=2),
        jax.nn.relu6,
    ]
    for stage in STAGES:
        channels = in_eights(stage.channels, width)
        for block in range(stage.blocks):
            stride = stage.stride if block == 0 else 1
            layers = _inverted_residual(form, before, stage.expansion, channels, stride)
            # A block that keeps the shape has a skip connection.
            if stride == 1 and before == channels:
                layers = [Skipped(nn.Sequential(layers))]
            body += layers
            before = channels
    last = form.layers(in_eights(LAST, max(1.0, width)))
    body += [*last, jax.nn.relu6, *pool_to(features, dropout)]
    return network(body, num_classes)


def _inverted_residual(
    form: Form, before: int, expansion: int, channels: int, stride: int
) -> list[Layer]:
    """Widens images, filters each channel, and narrows them to `channels`.

    No ReLU follows, because it would lose too much of few channels.
    """
    wide = expansion * before
    layers: list[Layer] = []
    if expansion > 1:
        layers += [*form.layers(wide), jax.nn.relu6]
    by_channel = form.layers(wide, size=3, stride=stride, groups=wide)
    return [*layers, *by_channel, jax.nn.relu6, *form.layers(channels)]
