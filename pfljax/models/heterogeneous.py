"""CNNs of several widths, for federations whose clients differ in architecture.

5x5 convolutions without padding, each with ReLU and a 2x2 pool, then dense layers, all
with biases. Client i has model i mod 5 + 1 of its group.

    htcnn_yi    Yi et al., FedGH, ACM MM 2023, https://arxiv.org/abs/2303.13137, and
                their later papers: the features are those of FC2, the head is FC3
    htcnn_akt   Liu et al., FedAKT, JSA 2025,
                https://doi.org/10.1016/j.sysarc.2025.103338: the features are the 1000
                of FC1, the head is FC2 and FC3. **The table is an assumption**, because
                the paper's table could not be read. It agrees with the text: widths
                differ, FC1 is 1000, CNN-4 is the smallest
    htfe_cnn    the 4-layer CNN of Zhang et al., FedTGP, AAAI 2024,
                https://arxiv.org/abs/2401.03230
"""

from collections.abc import Sequence

from flax import linen as nn

from pfljax.core import requirements
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Count
from pfljax.models.convolution import conv_layer
from pfljax.models.layers import add_channel, flatten
from pfljax.models.linear import Linear
from pfljax.models.network import Classes, Layer, network, relu_layers
from pfljax.models.pooling import max_pool
from pfljax.models.presets import Factory, preset

# The channels of each model's two convolutions, and the units of FC1.
YI = (
    ((16, 32), 2000),
    ((16, 16), 2000),
    ((16, 32), 1000),
    ((16, 32), 800),
    ((16, 32), 500),
)
# The same channels, and the units of FC2: an assumption, see above.
AKT = (
    ((32, 64), 1000),
    ((16, 64), 800),
    ((32, 32), 600),
    ((16, 16), 400),
    ((16, 32), 500),
)


@component
def htcnn(
    num_classes: Classes,
    *,
    channels: Sequence[int] = (16, 32),
    hidden: Sequence[int] = (2000, 500),
    split: Count | None = None,
    conv: str = "auto",
) -> nn.Module:
    """CNN: 5x5 convolution and 2x2 pool for each of `channels`, then `hidden` layers.

    Args:
      num_classes: number of classes.
      channels: channels of the convolutions.
      hidden: units of all dense layers except the last.
      split: number of `hidden` layers in the body; the others are in the head. None for
        all of them.
      conv: see `conv_for_platform`.
    """
    in_body = len(hidden) if split is None else split
    expected = f"at most {len(hidden)}, as many as there are hidden layers"
    requirements.require("split", in_body, in_body <= len(hidden), expected)
    convolution = conv_layer(conv, 5, padding="VALID")
    body: list[Layer] = [add_channel]
    for width in channels:
        body += [convolution(width), nn.relu, max_pool]
    body += [flatten, *relu_layers(Linear, hidden[:in_body])]
    return network(body, num_classes, hidden[in_body:])


@component
def htfe_cnn(
    num_classes: Classes, *, features: AtLeastOne = 512, conv: str = "auto"
) -> nn.Module:
    """4-layer CNN of FedTGP and HtFLlib, 32-64-512: 878,538 parameters on CIFAR-10."""
    return htcnn(num_classes, channels=(32, 64), hidden=(features,), conv=conv)


def _htcnn_yi(
    num_classes: Classes,
    *,
    channels: tuple[int, int],
    hidden: AtLeastOne = 2000,
    features: AtLeastOne = 500,
    conv: str = "auto",
) -> nn.Module:
    """Makes a model of Yi et al.: the head is the last layer."""
    widths = (hidden, features)
    return htcnn(num_classes, channels=channels, hidden=widths, conv=conv)


def _htcnn_akt(
    num_classes: Classes,
    *,
    channels: tuple[int, int],
    features: AtLeastOne = 1000,
    hidden: AtLeastOne = 1000,
    conv: str = "auto",
) -> nn.Module:
    """Makes a model of FedAKT: the head is FC2 and FC3."""
    widths = (features, hidden)
    return htcnn(num_classes, channels=channels, hidden=widths, split=1, conv=conv)


HTCNN_YI: dict[str, Factory] = {
    f"htcnn_yi{number}": preset(
        _htcnn_yi,
        f"htcnn_yi{number}",
        f"CNN-{number} of Yi et al., {'-'.join(map(str, (*channels, units, 500)))}; "
        "the head is the last layer.",
        {"hidden": units},
        channels=channels,
    )
    for number, (channels, units) in enumerate(YI, start=1)
}
AKT_DOCSTRING = """CNN-{} assumed of FedAKT, {}-{}-1000-{}; the head is FC2 and FC3.

    The paper's table could not be read: these widths are an assumption. `hidden` is
    500 where methods share the head (LG-FedAvg, FedGen).
    """
HTCNN_AKT: dict[str, Factory] = {
    f"htcnn_akt{number}": preset(
        _htcnn_akt,
        f"htcnn_akt{number}",
        AKT_DOCSTRING.format(number, *channels, units),
        {"hidden": units},
        channels=channels,
    )
    for number, (channels, units) in enumerate(AKT, start=1)
}
