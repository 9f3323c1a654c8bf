"""ResNet-18, and ResNet9, MobileNet and VGG9 of the sizes in SuPerFed's experiments.

Hahn et al., KDD 2022, https://arxiv.org/abs/2109.07628; blocks of He et al., 2016,
https://arxiv.org/abs/1512.03385, and Howard et al., 2017,
https://arxiv.org/abs/1704.04861. All have GroupNorm unless told otherwise, for clients
of few classes (Hsieh et al., ICML 2020, https://arxiv.org/abs/1910.00189), and all
skips; the three of SuPerFed have biases.
"""

from functools import partial
from typing import NamedTuple

from flax import linen as nn

from pfljax import registry
from pfljax.core.types import Array
from pfljax.models.convolution import conv_for_platform, convolve
from pfljax.models.layers import (
    NORMS,
    Layer,
    add_channel,
    flatten,
    mean_pixel,
    relu_layers,
)
from pfljax.models.network import Classes, Network
from pfljax.models.pooling import max_pool, window_max
from pfljax.registry import AtLeastOne, component

# Of ResNet9's residual blocks: the factor of the stem's channels, and the stride.
STAGES = ((1, 1), (2, 1), (4, 2), (8, 2))
# Of ResNet-18's stages of two blocks: the same, the stride being that of the first.
STAGES_OF_TWO = ((1, 1), (2, 2), (4, 2), (8, 2))
# Of MobileNet's blocks: channels, and the stride of the depthwise convolution.
SEPARABLE = ((64, 1), (128, 2), (256, 2), (512, 1))


class Form(NamedTuple):
    """What the layers of a model have in common."""

    norm: str
    conv: str
    use_bias: bool = True  # of convolutions

    def convolution(self, channels: int, size: int = 3, stride: int = 1) -> nn.Module:
        """A square convolution; images keep their size, but for the stride."""
        return nn.Conv(
            channels,
            kernel_size=(size, size),
            strides=stride,
            padding=size // 2,
            use_bias=self.use_bias,
            conv_general_dilated=conv_for_platform(self.conv),
        )

    def normalised(self, *layers: Layer) -> list[Layer]:
        """Each layer, followed by a normalisation."""
        norm = registry.find("norm", NORMS, self.norm)
        normalised = []
        for layer in layers:
            normalised += [layer, norm()]
        return normalised

    def head(self, num_classes: int) -> nn.Module:
        """256 units, then the logits."""
        hidden = relu_layers(nn.Dense, (256,))
        return nn.Sequential([*hidden, nn.Dense(num_classes)])

    def residual(self, before: int, channels: int, stride: int) -> "Residual":
        """Two convolutions of images with `before` channels, beside a skip."""
        first = self.convolution(channels, stride=stride)
        second = self.convolution(channels)
        layers = [*self.normalised(first), nn.relu, *self.normalised(second)]
        skip = None
        # Images of as many channels are added as they are: no stage strides then.
        if before != channels:
            projection = self.convolution(channels, size=1, stride=stride)
            skip = nn.Sequential(self.normalised(projection))
        return Residual(branch=nn.Sequential(layers), skip=skip)


class Residual(nn.Module):
    """ReLU of a branch plus its input, which `skip` brings to the same shape."""

    branch: nn.Module
    skip: nn.Module | None  # None: the input as it is

    def __call__(self, x: Array) -> Array:
        """Images [B, H, W, C] -> [B, H', W', C']."""
        skipped = x
        if self.skip is not None:
            skipped = self.skip(x)
        return nn.relu(self.branch(x) + skipped)


class Depthwise(nn.Module):
    """A 3x3 filter of its own for each channel."""

    stride: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Images [B, H, W, C] -> [B, H', W', C]."""
        channels = x.shape[-1]
        init = nn.initializers.lecun_normal()
        kernel = self.param("kernel", init, (3, 3, 1, channels))
        bias = self.param("bias", nn.initializers.zeros, (channels,))
        filtered = convolve(
            x,
            kernel,
            window_strides=(self.stride, self.stride),
            padding=((1, 1), (1, 1)),
            feature_group_count=channels,
        )
        return filtered + bias


@component
def resnet9(
    num_classes: Classes,
    *,
    stem: AtLeastOne = 64,
    norm: str = "group",
    conv: str = "auto",
) -> nn.Module:
    """ResNet9 with identity skips and biases; `stem` to 8 * `stem` channels."""
    form = Form(norm=norm, conv=conv)
    first = form.convolution(stem, stride=2)
    pool = partial(window_max, size=3, stride=2, pad=1)
    body = [add_channel, *form.normalised(first), nn.relu, pool]
    before = stem
    for factor, stride in STAGES:
        channels = factor * stem
        body.append(form.residual(before, channels, stride))
        before = channels
    body.append(mean_pixel)
    return Network(
        body=nn.Sequential(body),
        head=form.head(num_classes),
    )


@component
def resnet18(
    num_classes: Classes,
    *,
    stem: AtLeastOne = 64,
    norm: str = "group",
    conv: str = "auto",
) -> nn.Module:
    """ResNet-18 for small images: 11,173,962 parameters on CIFAR-10.

    Its first convolution is 3x3 without a stride, and no pool follows. `stem` to
    8 * `stem` channels.
    """
    # A bias before a normalisation is subtracted again.
    form = Form(norm=norm, conv=conv, use_bias=False)
    first = form.convolution(stem)
    body = [add_channel, *form.normalised(first), nn.relu]
    before = stem
    for factor, stride in STAGES_OF_TWO:
        channels = factor * stem
        body.append(form.residual(before, channels, stride))
        body.append(form.residual(channels, channels, stride=1))
        before = channels
    body.append(mean_pixel)
    return Network(
        body=nn.Sequential(body),
        head=nn.Dense(num_classes),
    )


@component
def mobilenet(
    num_classes: Classes, *, norm: str = "group", conv: str = "auto"
) -> nn.Module:
    """MobileNet of four depthwise separable blocks, with biases."""
    form = Form(norm=norm, conv=conv)
    layers = [form.convolution(32, stride=2)]
    for channels, stride in SEPARABLE:
        pointwise = form.convolution(channels, size=1)
        layers += [Depthwise(stride), pointwise]
    body = [add_channel]
    for layer in layers:
        body += form.normalised(layer)
        body.append(nn.relu)
    body.append(mean_pixel)
    return Network(
        body=nn.Sequential(body),
        head=form.head(num_classes),
    )


@component
def vgg9(num_classes: Classes, *, conv: str = "auto") -> nn.Module:
    """VGG9 with biases; it has no normalisation."""
    # No layer is normalised: the form's norm is never built.
    form = Form(norm="group", conv=conv)
    body = [add_channel]
    for channels in (16, 32, 64, 128, 256, 512):
        body += [form.convolution(channels), nn.relu]
        if channels not in (64, 256):
            body.append(max_pool)
    body.append(flatten)
    return Network(
        body=nn.Sequential(body),
        head=form.head(num_classes),
    )
