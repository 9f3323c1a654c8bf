"""GoogLeNet with normalisations and without the auxiliary heads.

Szegedy et al., CVPR 2015, https://arxiv.org/abs/1409.4842, in torchvision's layout: the
branch that the paper gives 5x5 filters has 3x3 (issue 906 of pytorch/vision). With
GroupNorm by default, as `convnets` says.
"""

from functools import partial, reduce
from typing import NamedTuple

import jax.numpy as jnp
from flax import linen as nn

from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Positive
from pfljax.core.types import Array
from pfljax.models.blocks import DropRate, Form, in_eights, pool_to
from pfljax.models.layers import add_channel
from pfljax.models.network import Classes, Layer, network
from pfljax.models.pooling import window_max
from pfljax.models.windows import Window, shift


class Channels(NamedTuple):
    """The channels of each branch of an inception block, reduced and filtered."""

    plain: int
    reduced: int
    filtered: int
    reduced_more: int
    filtered_more: int
    pooled: int


# The paper's table 1; between two stages is a pool.
STAGES = (
    (
        Channels(64, 96, 128, 16, 32, 32),
        Channels(128, 128, 192, 32, 96, 64),
    ),
    (
        Channels(192, 96, 208, 16, 48, 64),
        Channels(160, 112, 224, 24, 64, 64),
        Channels(128, 128, 256, 24, 64, 64),
        Channels(112, 144, 288, 32, 64, 64),
        Channels(256, 160, 320, 32, 128, 128),
    ),
    (
        Channels(256, 160, 320, 32, 128, 128),
        Channels(384, 192, 384, 48, 128, 128),
    ),
)
# Side of the squares of the pool before each stage.
POOLS = (3, 3, 2)
INIT = nn.initializers.truncated_normal(0.01)


class Inception(nn.Module):
    """Several branches on the same images, whose outputs are channels."""

    branches: tuple[nn.Module, ...]

    def __call__(self, x: Array) -> Array:
        """Maps images [B, H, W, C] to [B, H, W, C']."""
        outputs = [branch(x) for branch in self.branches]
        return jnp.concatenate(outputs, axis=-1)


@component
def googlenet(
    num_classes: Classes,
    *,
    width: Positive = 1.0,
    features: AtLeastOne | None = None,
    dropout: DropRate = 0.2,
    norm: str = "group",
    conv: str = "auto",
) -> nn.Module:
    """GoogLeNet as torchvision has it: 5,610,154 parameters for 10 classes.

    Images of 32 x 32 pixels are 1 x 1 in the last stage, where a group of few channels
    has little to normalise: narrow forms need larger images, or another `norm`.

    Args:
      num_classes: number of classes.
      width: factor of all channels, which stay multiples of 8.
      features: width that the features, 1024 * `width`, are pooled to; None for no
        pool.
      dropout: share of the features that training drops.
      norm: a name in `layers.NORMS`.
      conv: see `conv_for_platform`.
    """
    form = Form(norm, conv, kernel_init=INIT)
    stem = in_eights(64, width)
    body: list[Layer] = [
        add_channel,
        *_conv_relu(form, stem, size=7, stride=2),
        partial(half_max, size=3),
        *_conv_relu(form, stem),
        *_conv_relu(form, in_eights(192, width), size=3),
    ]
    for size, blocks in zip(POOLS, STAGES, strict=True):
        body.append(partial(half_max, size=size))
        body += [_inception(form, channels, width) for channels in blocks]
    return network([*body, *pool_to(features, dropout)], num_classes)


def half_max(x: Array, *, size: int) -> Array:
    """Takes the maximum of squares of `size` pixels, two apart.

    A last square may reach beyond the image, as in torch's `ceil_mode=True`.
    """
    beyond_rows = (size - x.shape[1]) % 2
    beyond_columns = (size - x.shape[2]) % 2
    window = Window(
        size=(size, size),
        strides=(2, 2),
        padding=((0, beyond_rows), (0, beyond_columns)),
    )
    return reduce(jnp.maximum, shift(x, window, fill=-jnp.inf))


def _conv_relu(
    form: Form, channels: int, *, size: int = 1, stride: int = 1
) -> list[Layer]:
    return [*form.layers(channels, size=size, stride=stride), nn.relu]


def _inception(form: Form, channels: Channels, width: float) -> Inception:
    """Makes an inception block whose channels have this factor."""
    scaled = Channels(*(in_eights(count, width) for count in channels))
    pool = partial(window_max, size=3, stride=1, pad=1)
    branches = (
        _conv_relu(form, scaled.plain),
        [
            *_conv_relu(form, scaled.reduced),
            *_conv_relu(form, scaled.filtered, size=3),
        ],
        [
            *_conv_relu(form, scaled.reduced_more),
            *_conv_relu(form, scaled.filtered_more, size=3),
        ],
        [pool, *_conv_relu(form, scaled.pooled)],
    )
    return Inception(tuple(nn.Sequential(branch) for branch in branches))
