"""ResNet-18, and ResNet9, MobileNet and VGG9 of the sizes in SuPerFed's experiments.

Hahn et al., KDD 2022, https://arxiv.org/abs/2109.07628; blocks of He et al., 2016,
https://arxiv.org/abs/1512.03385, and Howard et al., 2017,
https://arxiv.org/abs/1704.04861. All have GroupNorm by default, for clients
of few classes (Hsieh et al., ICML 2020, https://arxiv.org/abs/1910.00189), and all
skips; the three of SuPerFed have biases.
"""

from functools import partial

from flax import linen as nn

from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne
from pfljax.core.types import Array
from pfljax.models.blocks import LECUN, Form
from pfljax.models.convolution import convolve
from pfljax.models.layers import add_channel, flatten, mean_pixel
from pfljax.models.network import Classes, Layer, network
from pfljax.models.pooling import max_pool, window_max

# ResNet9's residual blocks: the factor of the stem's channels, and the stride.
STAGES = ((1, 1), (2, 1), (4, 2), (8, 2))
# ResNet-18's stages of two blocks: the same; the stride is that of the first block.
STAGES_OF_TWO = ((1, 1), (2, 2), (4, 2), (8, 2))
# MobileNet's blocks: channels, and the stride of the depthwise convolution.
SEPARABLE = ((64, 1), (128, 2), (256, 2), (512, 1))


class Depthwise(nn.Module):
    """A separate 3x3 filter for each channel."""

    stride: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps images [B, H, W, C] to [B, H', W', C]."""
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
    form = Form(norm, conv, kernel_init=LECUN, use_bias=True)
    first = form.layers(stem, size=3, stride=2)
    pool = partial(window_max, size=3, stride=2, pad=1)
    body: list[Layer] = [add_channel, *first, nn.relu, pool]
    before = stem
    for factor, stride in STAGES:
        channels = factor * stem
        body.append(form.residual(before, channels, stride))
        before = channels
    body.append(mean_pixel)
    return network(body, num_classes, hidden=(256,))


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
    form = Form(norm, conv, kernel_init=LECUN)
    first = form.layers(stem, size=3)
    body: list[Layer] = [add_channel, *first, nn.relu]
    before = stem
    for factor, stride in STAGES_OF_TWO:
        channels = factor * stem
        body.append(form.residual(before, channels, stride))
        body.append(form.residual(channels, channels, stride=1))
        before = channels
    body.append(mean_pixel)
    return network(body, num_classes)


@component
def mobilenet(
    num_classes: Classes, *, norm: str = "group", conv: str = "auto"
) -> nn.Module:
    """MobileNet of four depthwise separable blocks, with biases."""
    form = Form(norm, conv, kernel_init=LECUN, use_bias=True)
    layers: list[Layer] = [form.convolution(32, size=3, stride=2)]
    for channels, stride in SEPARABLE:
        layers += [Depthwise(stride), form.convolution(channels)]
    body: list[Layer] = [add_channel]
    for layer in layers:
        body += [*form.normalise(layer), nn.relu]
    body.append(mean_pixel)
    return network(body, num_classes, hidden=(256,))


@component
def vgg9(num_classes: Classes, *, conv: str = "auto") -> nn.Module:
    """VGG9 with biases; it has no normalisation."""
    # No layer is normalised, so the norm is not used.
    form = Form("group", conv, kernel_init=LECUN, use_bias=True)
    body: list[Layer] = [add_channel]
    for channels in (16, 32, 64, 128, 256, 512):
        body += [form.convolution(channels, size=3), nn.relu]
        if channels not in (64, 256):
            body.append(max_pool)
    body.append(flatten)
    return network(body, num_classes, hidden=(256,))
