"""The models. Each function takes the number of classes and makes a network.

A network has a body and a head. 2NN and CNN: McMahan et al., AISTATS 2017,
https://arxiv.org/abs/1602.05629. `cifar_cnn`: Granqvist et al., NeurIPS 2024,
https://arxiv.org/abs/2404.06430.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from flax import linen as nn

from pfljax.core import components, factories
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Positive, Share
from pfljax.models.adapters import FedPara, LoRA
from pfljax.models.convnets import mobilenet, resnet9, resnet18, vgg9
from pfljax.models.convolution import conv_layer
from pfljax.models.dense import Dense
from pfljax.models.dropout import Dropout
from pfljax.models.factorization import matrix_factorization
from pfljax.models.googlenet import googlenet
from pfljax.models.heterofl_cnn import HETEROFL, heterofl_cnn
from pfljax.models.heterogeneous import (
    HTCNN_AKT,
    HTCNN_YI,
    htcnn,
    htfe_cnn,
)
from pfljax.models.layers import add_channel, flatten
from pfljax.models.linear import Linear
from pfljax.models.mobilenet_v2 import mobilenet_v2
from pfljax.models.network import Classes, Layer, Network, network, relu_layers
from pfljax.models.pooling import max_pool
from pfljax.models.recurrent import char_lstm as char_lstm
from pfljax.models.resnets import HTRESNETS, RESNETS_224, htresnet
from pfljax.models.transformer import transformer


@component
def logistic(num_classes: Classes) -> nn.Module:
    """Multinomial logistic regression: its one layer is the head."""
    return Network(
        body=nn.Sequential([flatten]),
        head=Linear(num_classes),
    )


@component
def mlp(num_classes: Classes, *, hidden: Sequence[int] = (64,)) -> nn.Module:
    """Perceptron with ReLU after each of the `hidden` layers; head: the last layer."""
    layers: list[Layer] = [flatten, *relu_layers(Dense, hidden)]
    return network(layers, num_classes)


@component
def twonn(num_classes: Classes) -> nn.Module:
    """McMahan's 2NN, 200-200 with bias: 199,210 parameters on MNIST."""
    return mlp(num_classes, hidden=(200, 200))


@component
def twocnn(num_classes: Classes, *, conv: str = "auto") -> nn.Module:
    """McMahan's CNN: 5x5x32, 5x5x64, 512, K: 1,663,370 parameters on MNIST."""
    convolution = conv_layer(conv, 5)
    body: list[Layer] = [add_channel]
    for channels in (32, 64):
        body += [convolution(channels), nn.relu, max_pool]
    # Most of the parameters are here: `Linear` halves the time of their step on a CPU.
    body += [flatten, Linear(512), nn.relu]
    return network(body, num_classes)


@component
def cifar_cnn(num_classes: Classes, *, conv: str = "auto") -> nn.Module:
    """pfl-research's CNN: 3x3x32, 3x3x64, pool, 128, dropout; 1,626,442 on CIFAR-10."""
    convolution = conv_layer(conv, 3, padding="VALID")
    body: list[Layer] = [
        add_channel,
        convolution(32),
        nn.relu,
        convolution(64),
        nn.relu,
        max_pool,
        Dropout(0.25),
        flatten,
        Linear(128),
        nn.relu,
        Dropout(0.5),
    ]
    return network(body, num_classes)


@component
def gn_cnn(
    num_classes: Classes, *, channels: Sequence[int] = (32, 64), conv: str = "auto"
) -> nn.Module:
    """Small CNN: 3x3 convolution, GroupNorm, ReLU, 2x2 pool for each of `channels`.

    Groups: 8, or the greatest common divisor of 8 and the channels.
    """
    # A bias before a normalisation is subtracted again.
    convolution = conv_layer(conv, 3, use_bias=False)
    body: list[Layer] = [add_channel]
    for width in channels:
        groups = math.gcd(8, width)
        norm = nn.GroupNorm(num_groups=groups)
        body += [convolution(width), norm, nn.relu, max_pool]
    body.append(flatten)
    return network(body, num_classes)


@component
def lora(
    num_classes: Classes,
    *,
    model: str = "mlp",
    rank: AtLeastOne = 4,
    where: str = "*/kernel",
    scale: Positive = 2.0,
    train: str = "",
) -> nn.Module:
    """Another model, with a trained product A B added to its frozen kernels.

    Args:
      num_classes: number of classes.
      model: the other model with its options, such as "transformer:features=32".
      rank: the columns of A and the rows of B.
      where: names of the kernels with A and B, with spaces between them.
      scale: the factor of A B, alpha / rank.
      train: names of leaves that are trained as well, such as "head".
    """
    return LoRA(_parse(model, num_classes), where, rank, scale, train)


@component
def fedpara(
    num_classes: Classes,
    *,
    model: str = "mlp",
    gamma: Share = 0.5,
    where: str = "*/kernel",
    personal: bool = True,
) -> nn.Module:
    """Another model, whose kernels are (X1 Y1) * (X2 Y2 + 1), by element.

    Args:
      num_classes: number of classes.
      model: the other model with its options.
      gamma: 0 for the smallest rank, 1 for as many parameters as the other model has.
      where: names of the kernels that are replaced, with spaces between them.
      personal: whether 1 is added, as in pFedPara; FedPara adds 0.
    """
    return FedPara(_parse(model, num_classes), where, gamma, personal)


def _parse(text: str, num_classes: int) -> nn.Module:
    choice = components.parse(text)
    return model(choice.name, num_classes, **choice.options)


MODELS: dict[str, Callable[..., nn.Module]] = {
    "logistic": logistic,
    "mlp": mlp,
    "twonn": twonn,
    "twocnn": twocnn,
    "cifar_cnn": cifar_cnn,
    "gn_cnn": gn_cnn,
    "resnet9": resnet9,
    "resnet18": resnet18,
    "mobilenet": mobilenet,
    "vgg9": vgg9,
    "char_lstm": char_lstm,
    "transformer": transformer,
    "matrix_factorization": matrix_factorization,
    "htcnn": htcnn,
    **HTCNN_YI,
    **HTCNN_AKT,
    "htfe_cnn": htfe_cnn,
    "heterofl_cnn": heterofl_cnn,
    **HETEROFL,
    "htresnet": htresnet,
    **HTRESNETS,
    **RESNETS_224,
    "mobilenet_v2": mobilenet_v2,
    "googlenet": googlenet,
    "lora": lora,
    "fedpara": fedpara,
}


def model(name: str, num_classes: int, **params: Any) -> nn.Module:
    """Makes the model of this name in `MODELS`.

    Raises:
      ValueError: for an unknown name or parameter, a size below 1, or fewer than two
        classes.
    """
    choice = components.Component(name, params)
    return factories.build("model", MODELS, choice, num_classes, returns=nn.Module)
