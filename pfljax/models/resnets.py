"""Residual networks with a stem for large images, from 4 to 152 layers.

He et al., CVPR 2016, https://arxiv.org/abs/1512.03385, in torchvision's layout: a
stride is that of the 3x3 convolution. ResNet-4 to -10 are those of HtFLlib, which leave
out stages and blocks (https://github.com/TsingZ0/HtFLlib). All have GroupNorm unless
told otherwise, as `convnets` says.
"""

from collections.abc import Sequence
from functools import partial

from flax import linen as nn

from pfljax.models.conv_norm import ConvNorm, dense_head, pooled
from pfljax.models.convnets import Residual
from pfljax.models.layers import Layer, add_channel
from pfljax.models.named import Factory, named
from pfljax.models.network import Classes, Network
from pfljax.models.pooling import window_max
from pfljax.registry import AtLeastOne, component

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
      num_classes: of the logits.
      blocks: of each stage; a stage has twice the channels of that before.
      stem: channels of the first stage.
      features: width that the channels of the last stage are averaged or repeated into,
        1000 in FedAKT and 512 in HtFLlib; None, as they are.
      hidden: ReLU layers of the head before its last: none in HtFLlib, one in FedAKT.
      norm: a name in `layers.NORMS`.
      conv: as `conv_for_platform` says.
    """
    form = ConvNorm(norm=norm, conv=conv)
    layers = _stages(form, blocks, stem, bottleneck=False)
    return Network(
        body=nn.Sequential([*layers, *pooled(features)]),
        head=dense_head(num_classes, hidden),
    )


def _stages(
    form: ConvNorm, blocks: Sequence[int], stem: int, bottleneck: bool
) -> list[Layer]:
    """The stem, which leaves a quarter of rows and columns, and the residual blocks."""
    first = form.layers(stem, size=7, stride=2)
    pool = partial(window_max, size=3, stride=2, pad=1)
    layers = [add_channel, *first, nn.relu, pool]
    expansion = EXPANSION if bottleneck else 1
    before = stem
    for stage, count in enumerate(blocks):
        channels = stem * 2**stage
        for block in range(count):
            # The first stage follows a pool.
            stride = 2 if stage > 0 and block == 0 else 1
            branch = _bottleneck if bottleneck else _basic
            layers.append(
                Residual(
                    branch=branch(form, channels, stride),
                    skip=_skip(form, before, expansion * channels, stride),
                )
            )
            before = expansion * channels
    return layers


def _basic(form: ConvNorm, channels: int, stride: int) -> nn.Module:
    """Two 3x3 convolutions."""
    first = form.layers(channels, size=3, stride=stride)
    second = form.layers(channels, size=3)
    return nn.Sequential([*first, nn.relu, *second])


def _bottleneck(form: ConvNorm, channels: int, stride: int) -> nn.Module:
    """A 3x3 convolution of few channels, between two that change their number."""
    fewer = form.layers(channels)
    middle = form.layers(channels, size=3, stride=stride)
    more = form.layers(EXPANSION * channels)
    return nn.Sequential([*fewer, nn.relu, *middle, nn.relu, *more])


def _skip(form: ConvNorm, before: int, after: int, stride: int) -> nn.Module | None:
    """A projection; None where images keep their shape."""
    if before == after and stride == 1:
        return None
    return nn.Sequential(form.layers(after, stride=stride))


def _htresnet(depth: int, of_stages: tuple[int, ...]) -> Factory:
    def factory(
        num_classes: Classes,
        *,
        stem: AtLeastOne = 64,
        features: AtLeastOne | None = 1000,
        hidden: Sequence[int] = (),
        norm: str = "group",
        conv: str = "auto",
    ) -> nn.Module:
        return htresnet(
            num_classes,
            blocks=of_stages,
            stem=stem,
            features=features,
            hidden=hidden,
            norm=norm,
            conv=conv,
        )

    blocks = "-".join(map(str, of_stages))
    docstring = f"ResNet-{depth} of HtFLlib, blocks {blocks}; pooled to `features`."
    return named(factory, f"htresnet{depth}", docstring)


def _resnet_224(depth: int, blocks: tuple[int, ...]) -> Factory:
    def factory(
        num_classes: Classes,
        *,
        stem: AtLeastOne = 64,
        features: AtLeastOne | None = None,
        norm: str = "group",
        conv: str = "auto",
    ) -> nn.Module:
        form = ConvNorm(norm=norm, conv=conv)
        layers = _stages(form, blocks, stem, bottleneck=depth in BOTTLENECKS)
        return Network(
            body=nn.Sequential([*layers, *pooled(features)]),
            head=nn.Dense(num_classes),
        )

    docstring = f"ResNet-{depth} with the 7x7 stem of torchvision's, for large images."
    return named(factory, f"resnet{depth}_224", docstring)


HTRESNETS: dict[str, Factory] = {
    f"htresnet{depth}": _htresnet(depth, blocks) for depth, blocks in OF_HTFLLIB.items()
}
RESNETS_224: dict[str, Factory] = {
    f"resnet{depth}_224": _resnet_224(depth, blocks)
    for depth, blocks in OF_TORCHVISION.items()
}
