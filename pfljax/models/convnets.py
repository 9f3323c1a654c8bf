"""ResNet9, MobileNet and VGG9, as the experiments of SuPerFed have them.

Hahn et al., KDD 2022, https://arxiv.org/abs/2109.07628; blocks of He et al., 2016,
https://arxiv.org/abs/1512.03385, and Howard et al., 2017,
https://arxiv.org/abs/1704.04861. `x` has biases, all its skips and GroupNorm;
`x_superfed` is as SuPerFed's code has it: no bias, Xavier kernels, batch statistics,
no skip around ResNet9's first block, no padding of MobileNet's depthwise filters. Its
server does not average the biases of batch normalisation: norm="batch_superfed".
"""

from functools import partial
from typing import NamedTuple

from flax import linen as nn

from pfljax import registry
from pfljax.core.types import Array
from pfljax.models.convolution import conv_for_platform, depthwise, max_pool, window_max
from pfljax.models.layers import (
    NORMS,
    XAVIER,
    Layer,
    add_channel,
    bare_dense,
    flatten,
    mean_pixel,
    relu_layers,
)
from pfljax.models.network import Network


class Form(NamedTuple):
    """What the layers of a model have in common."""

    bare: bool  # no bias, Xavier kernels
    norm: str
    conv: str

    def convolution(self, channels: int, size: int = 3, stride: int = 1) -> nn.Module:
        """A square convolution; images keep their size, but for the stride."""
        own = {"use_bias": False, "kernel_init": XAVIER} if self.bare else {}
        how = conv_for_platform(self.conv)
        sides = {"strides": stride, "padding": size // 2}
        return nn.Conv(channels, (size, size), **sides, **own, conv_general_dilated=how)

    def normalised(self, *layers: Layer) -> list[Layer]:
        """Each layer, followed by a normalisation."""
        norm = registry.find("norm", NORMS, self.norm)
        return [each for layer in layers for each in (layer, norm())]

    def head(self, num_classes: int) -> nn.Module:
        """256 units, then the logits."""
        dense = bare_dense if self.bare else nn.Dense
        return nn.Sequential([*relu_layers(dense, (256,)), dense(num_classes)])


class Residual(nn.Module):
    """ReLU of a branch plus its input, which `skip` brings to the same shape."""

    branch: nn.Module
    skip: nn.Module | None  # None: the input as it is

    def __call__(self, x: Array) -> Array:
        """Images [B, H, W, C] -> [B, H', W', C']."""
        return nn.relu(self.branch(x) + (x if self.skip is None else self.skip(x)))


class Depthwise(nn.Module):
    """A 3x3 filter of its own for each channel; the bare form does not pad."""

    form: Form
    stride: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Images [B, H, W, C] -> [B, H', W', C]."""
        init = XAVIER if self.form.bare else nn.initializers.lecun_normal()
        channels = x.shape[-1]
        kernel = self.param("kernel", init, (3, 3, 1, channels))
        y = depthwise(x, kernel, self.stride, pad=0 if self.form.bare else 1)
        if self.form.bare:
            return y
        return y + self.param("bias", nn.initializers.zeros, (channels,))


def resnet9(
    num_classes: int, *, stem: int = 64, norm: str = "group", conv: str = "auto"
) -> nn.Module:
    """ResNet9 with identity skips and biases; `stem` to 8 * `stem` channels."""
    return _resnet9(num_classes, stem, Form(False, norm, conv))


def resnet9_superfed(
    num_classes: int, *, stem: int = 64, norm: str = "batch", conv: str = "auto"
) -> nn.Module:
    """5,054,784 parameters with 100 classes of 3-channel images."""
    return _resnet9(num_classes, stem, Form(True, norm, conv))


def _resnet9(num_classes: int, stem: int, form: Form) -> nn.Module:
    body = [add_channel, *form.normalised(form.convolution(stem, stride=2)), nn.relu]
    body.append(partial(window_max, size=3, stride=2, pad=1))
    before = stem
    for times, stride in ((1, 1), (2, 1), (4, 2), (8, 2)):
        channels = times * stem
        first, *rest = form.normalised(
            form.convolution(channels, stride=stride), form.convolution(channels)
        )
        branch = nn.Sequential([first, rest[0], nn.relu, *rest[1:]])
        if before != channels:
            one = form.convolution(channels, size=1, stride=stride)
            body.append(Residual(branch, nn.Sequential(form.normalised(one))))
        elif form.bare:
            body += [branch, nn.relu]
        else:
            body.append(Residual(branch, None))
        before = channels
    return Network(nn.Sequential([*body, mean_pixel]), form.head(num_classes))


def mobilenet(
    num_classes: int, *, norm: str = "group", conv: str = "auto"
) -> nn.Module:
    """MobileNet of four depthwise separable blocks, with biases."""
    return _mobilenet(num_classes, Form(False, norm, conv))


def mobilenet_superfed(
    num_classes: int, *, norm: str = "batch", conv: str = "auto"
) -> nn.Module:
    """364,480 parameters with 200 classes of 3-channel images, 64x64 in the paper."""
    return _mobilenet(num_classes, Form(True, norm, conv))


def _mobilenet(num_classes: int, form: Form) -> nn.Module:
    layers = [form.convolution(32, stride=2)]
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 1)):
        layers += [Depthwise(form, stride), form.convolution(channels, size=1)]
    body = [add_channel]
    for layer in layers:
        body += [*form.normalised(layer), nn.relu]
    return Network(nn.Sequential([*body, mean_pixel]), form.head(num_classes))


def vgg9(num_classes: int, *, conv: str = "auto") -> nn.Module:
    """VGG9 with biases; it has no normalisation."""
    return _vgg9(num_classes, Form(False, "group", conv))


def vgg9_superfed(num_classes: int, *, conv: str = "auto") -> nn.Module:
    """1,718,416 parameters with 62 classes of 28x28x1 images."""
    return _vgg9(num_classes, Form(True, "batch", conv))


def _vgg9(num_classes: int, form: Form) -> nn.Module:
    body = [add_channel]
    for channels in (16, 32, 64, 128, 256, 512):
        body += [form.convolution(channels), nn.relu]
        if channels not in (64, 256):
            body.append(max_pool)
    return Network(nn.Sequential([*body, flatten]), form.head(num_classes))
