"""The networks of SuPerFed's code: no biases, Xavier kernels, batch statistics.

Hahn et al., KDD 2022, https://arxiv.org/abs/2109.07628. The library's models of the
same architectures have biases, all their skips, and GroupNorm. Here ResNet9 has no skip
around its first block, and MobileNet no padding of its depthwise filters. The only
biases are those of batch normalisation, which the code's server never averages
(`methods/_code.py`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flax import linen as nn

from pfljax.core import requirements
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne
from pfljax.core.types import Array
from pfljax.models import LSTM, Network, conv_for_platform, convolve, max_pool
from pfljax.models.blocks import Residual
from pfljax.models.layers import NORMS, add_channel, flatten, mean_pixel
from pfljax.models.network import relu_layers
from pfljax.models.pooling import window_max
from pfljax.models.recurrent import Embedding, last_state

XAVIER = nn.initializers.glorot_normal()
BARE = {"use_bias": False, "kernel_init": XAVIER}
dense = partial(nn.Dense, **BARE)
Layers = list[Callable[..., Any]]


def twonn_superfed(num_classes: int) -> nn.Module:
    """TwoNN: body 200-200, head 200-K; 238,800 parameters on MNIST."""
    body = [flatten, *relu_layers(dense, (200, 200))]
    return Network(nn.Sequential(body), head((200,), num_classes))


@component
def twocnn_superfed(num_classes: int, *, conv: str = "auto") -> nn.Module:
    """TwoCNN: head 200-200-K; 722,800 parameters on 28x28x3 images."""
    body: Layers = [add_channel]
    for channels in (32, 64):
        convolution = nn.Conv(
            channels,
            kernel_size=(5, 5),
            padding=1,
            conv_general_dilated=conv_for_platform(conv),
            **BARE,
        )
        body += [convolution, nn.relu, partial(max_pool, pad=1)]
    return Network(nn.Sequential([*body, flatten]), head((200, 200), num_classes))


@component
def resnet9_superfed(
    num_classes: int, *, stem: AtLeastOne = 64, norm: str = "batch", conv: str = "auto"
) -> nn.Module:
    """5,054,784 parameters with 100 classes of 3-channel images; `stem` channels."""
    body = [add_channel, *normalised(norm, square(stem, conv, stride=2)), nn.relu]
    body.append(partial(window_max, size=3, stride=2, pad=1))
    before = stem
    for times, stride in ((1, 1), (2, 1), (4, 2), (8, 2)):
        channels = times * stem
        branch = block(channels, stride, norm, conv)
        if before == channels:  # the first block has no skip
            body += [branch, nn.relu]
        else:
            one = square(channels, conv, size=1, stride=stride)
            body.append(Residual(branch, nn.Sequential(normalised(norm, one))))
        before = channels
    return Network(nn.Sequential([*body, mean_pixel]), head((256,), num_classes))


@component
def mobilenet_superfed(
    num_classes: int, *, norm: str = "batch", conv: str = "auto"
) -> nn.Module:
    """364,480 parameters with 200 classes of 3-channel images, 64x64 in the paper."""
    layers: Layers = [square(32, conv, stride=2)]
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 1)):
        layers += [Depthwise(stride), square(channels, conv, size=1)]
    body: Layers = [add_channel]
    for layer in layers:
        body += [*normalised(norm, layer), nn.relu]
    return Network(nn.Sequential([*body, mean_pixel]), head((256,), num_classes))


@component
def vgg9_superfed(num_classes: int, *, conv: str = "auto") -> nn.Module:
    """1,718,416 parameters with 62 classes of 28x28x1 images; no normalisation."""
    body: Layers = [add_channel]
    for channels in (16, 32, 64, 128, 256, 512):
        body += [square(channels, conv), nn.relu]
        if channels not in (64, 256):
            body.append(max_pool)
    return Network(nn.Sequential([*body, flatten]), head((256,), num_classes))


@component
def char_lstm_superfed(num_classes: int, *, hidden: AtLeastOne = 256) -> nn.Module:
    """NextCharLM: 821,024 parameters with 100 characters.

    Both layers are one module, as torch's LSTM is: SuPerFed-LM draws one lambda.
    """
    body = [Embedding(100, 8), LSTM(hidden, layers=2, bias=False), last_state]
    return Network(nn.Sequential(body), dense(num_classes), vocab=100)


def head(widths: Sequence[int], num_classes: int) -> nn.Module:
    """Dense layers with a ReLU each, then the logits."""
    return nn.Sequential([*relu_layers(dense, widths), dense(num_classes)])


def square(channels: int, conv: str, size: int = 3, stride: int = 1) -> nn.Module:
    """A square convolution; images keep their size, but for the stride."""
    return nn.Conv(
        channels,
        kernel_size=(size, size),
        strides=stride,
        padding=size // 2,
        conv_general_dilated=conv_for_platform(conv),
        **BARE,
    )


def normalised(norm: str, layer: Callable[..., Any]) -> Layers:
    """The layer, followed by the normalisation of this name."""
    return [layer, requirements.find("norm", NORMS, norm)()]


def block(channels: int, stride: int, norm: str, conv: str) -> nn.Module:
    """Two normalised convolutions with a ReLU between them."""
    first = normalised(norm, square(channels, conv, stride=stride))
    second = normalised(norm, square(channels, conv))
    return nn.Sequential([*first, nn.relu, *second])


class Depthwise(nn.Module):
    """A 3x3 filter of its own for each channel, without padding."""

    stride: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Images [B, H, W, C] -> [B, H', W', C]."""
        channels = x.shape[-1]
        kernel = self.param("kernel", XAVIER, (3, 3, 1, channels))
        return convolve(
            x,
            kernel,
            window_strides=(self.stride, self.stride),
            padding="VALID",
            feature_group_count=channels,
        )


MODELS = {
    factory.__name__: factory
    for factory in (
        twonn_superfed,
        twocnn_superfed,
        resnet9_superfed,
        mobilenet_superfed,
        vgg9_superfed,
        char_lstm_superfed,
    )
}
