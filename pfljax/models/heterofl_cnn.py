"""The CNN of HeteroFL in five widths, each of which is a slice of the wider ones.

Diao, Ding, Tarokh, ICLR 2021, https://arxiv.org/abs/2010.01264. Four blocks of a 3x3
convolution, a scaler, a normalisation, ReLU and a 2x2 pool, the last one without it;
then the mean over pixels and a dense layer. At the rate r of its level a block has
ceil(r h) channels, h of 64, 128, 256, 512:

    level   a    b    c    d    e
    rate    1   1/2  1/4  1/8  1/16

The scaler divides by the rate in training, so that activations of a narrow model are as
large as those of the widest. Before a normalisation by the statistics of the batch,
this changes only epsilon, which keeps the root from 0:

    (x / r - m / r) / sqrt(v / r^2 + epsilon) = (x - m) / sqrt(v + epsilon r^2)

So epsilon has the factor r^2, and statistics are those of x, which evaluation
normalises.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from flax import linen as nn

from pfljax.core import ranges
from pfljax.core.factories import component
from pfljax.core.types import Array
from pfljax.models.convolution import conv_layer
from pfljax.models.layers import GroupNorm, add_channel, mean_pixel
from pfljax.models.network import Classes, Layer
from pfljax.models.network import network as make_network
from pfljax.models.pooling import max_pool
from pfljax.models.presets import Factory, preset

HIDDEN = (64, 128, 256, 512)
LEVELS = {"a": 1.0, "b": 1 / 2, "c": 1 / 4, "d": 1 / 8, "e": 1 / 16}
EPSILON = 1e-5  # torch's
Rate = Annotated[float, ranges.Range(lambda rate: 0 < rate <= 1, "above 0, up to 1")]
Norm = Literal["static", "group", "none"]


class Scaled(nn.Module):
    """The scaler, and the normalisation behind it.

    "static" takes the statistics of the batch in training. Its running statistics are
    those of the last batch; HeteroFL measures those of evaluation.
    """

    rate: float = 1.0
    norm: str = "static"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps images [B, H, W, C] to the same shape."""
        # The key of dropout is there in training alone.
        rate = self.rate if self.has_rng("dropout") else 1.0
        if self.norm == "static":
            return nn.BatchNorm(momentum=0.0, epsilon=EPSILON * rate**2)(x)
        scaled = x / rate
        return GroupNorm()(scaled) if self.norm == "group" else scaled


@component
def heterofl_cnn(
    num_classes: Classes,
    *,
    rate: Rate = 1.0,
    channels: Sequence[int] = HIDDEN,
    norm: Norm = "static",
    scaler: bool = True,
    conv: str = "auto",
) -> nn.Module:
    """CNN of HeteroFL at this rate; 1,556,874 parameters on MNIST at rate 1.

    Args:
      num_classes: number of classes.
      rate: share of the channels that it has.
      channels: channels of the convolutions at rate 1.
      norm: "static", by the batch in training; "group"; or "none".
      scaler: whether training divides by the rate.
      conv: see `conv_for_platform`.
    """
    widths = [math.ceil(rate * count) for count in channels]
    return network(num_classes, widths, rate if scaler else 1.0, norm, conv)


def network(
    num_classes: int, widths: Sequence[int], scale: float, norm: str, conv: str
) -> nn.Module:
    """Makes blocks of these widths, with a scaler of this number, and the head."""
    convolution = conv_layer(conv, 3)
    body: list[Layer] = [add_channel]
    for width in widths:
        body += [convolution(width), Scaled(scale, norm), nn.relu, max_pool]
    # The last block has no pool.
    body[-1] = mean_pixel
    return make_network(body, num_classes)


HETEROFL: dict[str, Factory] = {
    f"heterofl_{level}": preset(
        heterofl_cnn,
        f"heterofl_{level}",
        f"CNN of HeteroFL, level {level}: the rate is {rate:g}.",
        rate=rate,
    )
    for level, rate in LEVELS.items()
}
