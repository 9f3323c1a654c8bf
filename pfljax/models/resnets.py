"""Residual networks with a stem for large images, from 4 to 152 layers.

He et al., CVPR 2016, https://arxiv.org/abs/1512.03385, in torchvision's layout: a
stride is that of the 3x3 convolution. ResNet-4 to -10 are those of HtFLlib, which leave
out stages and blocks (https://github.com/TsingZ0/HtFLlib). All have GroupNorm by
default, as `convnets` says.
"""

from collections.abc import Sequence
from functools import partial

from flax import linen as nn

from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne
from pfljax.models.blocks import Form, Residual, pool_to
from pfljax.models.layers import add_channel
from pfljax.models.network import Classes, Layer, network
from pfljax.models.pooling import window_max
from pfljax.models.presets import Factory, preset

# Blocks of each stage, by the number of layers.
OF_HTFLLIB = {
    4: (1,),
    6: (1, 1),
    8: (1, 1, 1),
    10: (1, 1, 1, 1),
    18: (2, 2, 2, 2),
}
OF_TORCHVISION = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
BOTTLENECKS = (50, 101, 152)  # whose blocks have three convolutions
EXPANSION = 4  # outputs of such a block, for each channel of its 3x3 convolution


@component
def htresnet(
    num_classes: Classes,
    *,
    blocks: Sequence[int] = (1,),
    stem: AtLeastOne = 64,
    features: AtLeastOne | None = 1000,
    hidden: Sequence[int] = (),
    norm: str = "group",
    conv: str = "auto",
) -> nn.Module:
    """ResNet of so many `blocks` a stage, whose features are pooled to one width.

    Args:
      num_classes: number of classes.
      blocks: of each stage; a stage has twice the channels of that before.
      stem: channels of the first stage.
      features: width that the channels of the last stage are averaged or repeated into,
        1000 in FedAKT and 512 in HtFLlib; None for no pool.
      hidden: units of the head's ReLU layers: none in HtFLlib, one layer in FedAKT.
      norm: a name in `layers.NORMS`.
      conv: see `conv_for_platform`.
    """
    layers = _stages(Form(norm, conv), blocks, stem, bottleneck=False)
    return network([*layers, *pool_to(features)], num_classes, hidden)


def _resnet_224(
    num_classes: Classes,
    *,
    depth: int,
    stem: AtLeastOne = 64,
    features: AtLeastOne | None = None,
    norm: str = "group",
    conv: str = "auto",
) -> nn.Module:
    """Makes a ResNet of torchvision, whose features keep their width by default."""
    blocks = OF_TORCHVISION[depth]
    layers = _stages(Form(norm, conv), blocks, stem, depth in BOTTLENECKS)
    return network([*layers, *pool_to(features)], num_classes)


def _stages(
    form: Form, blocks: Sequence[int], stem: int, bottleneck: bool
) -> list[Layer]:
    """Makes the stem, which leaves a quarter of rows and columns, and all blocks."""
    first = form.layers(stem, size=7, stride=2)
    pool = partial(window_max, size=3, stride=2, pad=1)
    layers: list[Layer] = [add_channel, *first, nn.relu, pool]
    expansion = EXPANSION if bottleneck else 1
    before = stem
    for stage, count in enumerate(blocks):
        channels = stem * 2**stage
        for block in range(count):
            # The first stage follows a pool.
            stride = 2 if stage > 0 and block == 0 else 1
            make = _bottleneck if bottleneck else Form.residual
            layers.append(make(form, before, channels, stride))
            before = expansion * channels
    return layers


def _bottleneck(form: Form, before: int, channels: int, stride: int) -> Residual:
    """Makes a 3x3 convolution of few channels, between two that change their number."""
    after = EXPANSION * channels
    first = form.layers(channels)
    middle = form.layers(channels, size=3, stride=stride)
    last = form.layers(after)
    branch = nn.Sequential([*first, nn.relu, *middle, nn.relu, *last])
    return Residual(branch, form.skip(before, after, stride))


HTRESNETS: dict[str, Factory] = {
    f"htresnet{depth}": preset(
        htresnet,
        f"htresnet{depth}",
        f"ResNet-{depth} of HtFLlib, blocks {'-'.join(map(str, blocks))}; pooled to "
        "`features`.",
        blocks=blocks,
    )
    for depth, blocks in OF_HTFLLIB.items()
}
RESNETS_224: dict[str, Factory] = {
    f"resnet{depth}_224": preset(
        _resnet_224,
        f"resnet{depth}_224",
        f"ResNet-{depth} with the 7x7 stem of torchvision's, for large images.",
        depth=depth,
    )
    for depth in OF_TORCHVISION
}
