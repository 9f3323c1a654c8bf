"""The models of W8 and W9 in PyTorch, for `torch_groups`.

Layers and sizes are those of `pfljax.models`: HtCNN of Yi et al. (FedGH, ACM MM 2023),
and the group HtFE_4 of Zhang et al. (FedTGP, AAAI 2024) in torchvision's layout, with
GroupNorm. Images are 32 x 32 x 3.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch_workloads import Residual, convolution

CLASSES = 10
DROPOUT = 0.2


class Network(nn.Module):
    """A body, whose output are the features, and a linear head."""

    def __init__(self, body: list[nn.Module], features: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W] -> logits."""
        return self.head(self.body(x))


def htcnn(channels: tuple[int, ...], hidden: tuple[int, ...]) -> Network:
    """A 5x5 convolution and a pool for each of `channels`, then `hidden` layers."""
    layers: list[nn.Module] = []
    before = 3
    side = 32
    for width in channels:
        layers += [nn.Conv2d(before, width, 5), nn.ReLU(), nn.MaxPool2d(2)]
        before = width
        side = (side - 4) // 2
    layers.append(nn.Flatten())
    before *= side**2
    for width in hidden:
        layers += [nn.Linear(before, width), nn.ReLU()]
        before = width
    return Network(layers, before)


def pooled(channels: int, features: int, dropout: float = 0.0) -> list[nn.Module]:
    """The mean over pixels, dropout, and a pool to so many features."""
    layers: list[nn.Module] = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    if dropout:
        layers.append(nn.Dropout(dropout))
    if channels != features:
        layers.append(nn.AdaptiveAvgPool1d(features))
    return layers


def resnet18(features: int) -> Network:
    """ResNet-18 with the 7x7 stem for large images."""
    pool = nn.MaxPool2d(3, 2, padding=1)
    layers = [*convolution(3, 64, 7, 2), nn.ReLU(), pool]
    before = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers.append(Residual(before, channels, stride))
        layers.append(Residual(channels, channels, 1))
        before = channels
    return Network([*layers, *pooled(512, features)], features)


class Inception(nn.Module):
    """What each branch makes of the same images, side by side as channels."""

    def __init__(self, before: int, channels: tuple[int, ...]) -> None:
        super().__init__()
        plain, reduced, filtered, reduced_more, filtered_more, projected = channels
        self.branches = nn.ModuleList(
            [
                activated(before, plain, 1),
                nn.Sequential(
                    activated(before, reduced, 1), activated(reduced, filtered, 3)
                ),
                nn.Sequential(
                    activated(before, reduced_more, 1),
                    activated(reduced_more, filtered_more, 3),
                ),
                nn.Sequential(
                    nn.MaxPool2d(3, 1, padding=1), activated(before, projected, 1)
                ),
            ]
        )
        self.channels = plain + filtered + filtered_more + projected

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W] -> [B, C', H, W]."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def activated(before: int, channels: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution, its normalisation and a ReLU."""
    return nn.Sequential(*convolution(before, channels, size, stride), nn.ReLU())


# Of each inception block the channels: plain, reduced, filtered, reduced more, filtered
# more, pooled; between two stages is a pool of so many pixels.
INCEPTION = (
    (3, ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64))),
    (
        3,
        (
            (192, 96, 208, 16, 48, 64),
            (160, 112, 224, 24, 64, 64),
            (128, 128, 256, 24, 64, 64),
            (112, 144, 288, 32, 64, 64),
            (256, 160, 320, 32, 128, 128),
        ),
    ),
    (2, ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128))),
)


def googlenet(features: int) -> Network:
    """GoogLeNet without the heads that look at its middle."""
    pool = partial(nn.MaxPool2d, stride=2, ceil_mode=True)
    layers: list[nn.Module] = [
        activated(3, 64, 7, 2),
        pool(3),
        activated(64, 64, 1),
        activated(64, 192, 3),
    ]
    before = 192
    for size, blocks in INCEPTION:
        layers.append(pool(size))
        for channels in blocks:
            block = Inception(before, channels)
            layers.append(block)
            before = block.channels
    return Network([*layers, *pooled(before, features, DROPOUT)], features)


class Skipped(nn.Module):
    """A branch plus its input."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W] -> the same shape."""
        return x + self.branch(x)


def inverted(before: int, expansion: int, channels: int, stride: int) -> nn.Module:
    """Wider images, a 3x3 filter by channel, and `channels` of what it makes."""
    wide = expansion * before
    layers: list[nn.Module] = []
    if expansion > 1:
        layers += [*convolution(before, wide, 1, 1), nn.ReLU6()]
    layers += [*convolution(wide, wide, 3, stride, groups=wide), nn.ReLU6()]
    branch = nn.Sequential(*layers, *convolution(wide, channels, 1, 1))
    return Skipped(branch) if stride == 1 and before == channels else branch


# Expansion, channels, blocks, and the stride of the first.
INVERTED = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(features: int) -> Network:
    """MobileNet v2."""
    layers = [*convolution(3, 32, 3, 2), nn.ReLU6()]
    before = 32
    for expansion, channels, blocks, stride in INVERTED:
        for block in range(blocks):
            layers.append(inverted(before, expansion, channels, 1 if block else stride))
            before = channels
    layers += [*convolution(before, 1280, 1, 1), nn.ReLU6()]
    return Network([*layers, *pooled(1280, features, DROPOUT)], features)


class Architecture(NamedTuple):
    """A model of a group."""

    make: Callable[[], Network]
    milliseconds: float  # about, of a step on one core: for dealing clients alone


GROUPS: dict[str, tuple[Architecture, ...]] = {
    "W8": (
        Architecture(partial(htcnn, (16, 32), (2000, 500)), 8.9),
        Architecture(partial(htcnn, (16, 16), (2000, 500)), 6.1),
        Architecture(partial(htcnn, (16, 32), (1000, 500)), 5.4),
        Architecture(partial(htcnn, (16, 32), (800, 500)), 4.8),
        Architecture(partial(htcnn, (16, 32), (500, 500)), 4.1),
    ),
    "W9": (
        Architecture(partial(htcnn, (32, 64), (512,)), 8.7),
        Architecture(partial(googlenet, 512), 90),
        Architecture(partial(mobilenet_v2, 512), 107),
        Architecture(partial(resnet18, 512), 119),
    ),
}
