"""Groups of models for federations whose clients differ in architecture.

Client i has model i mod X of a group of X models. HtFE_X are the groups of Zhang et
al., FedTGP, AAAI 2024, https://arxiv.org/abs/2401.03230, and of HtFLlib.

The models of a group with a width in `FEATURES` take the option `features`. Left to
their defaults those of an HtFE group differ in it: heads that are to be shared or
averaged need that width. The five of `heterofl` are slices of one another.
"""

from pfljax.models.heterofl_cnn import HETEROFL
from pfljax.models.heterogeneous import HTCNN_AKT, HTCNN_YI
from pfljax.models.resnets import HTRESNETS

SMALL_RESNETS = ("htresnet4", "htresnet6", "htresnet8", "htresnet10")
LARGE_RESNETS = ("resnet34_224", "resnet50_224", "resnet101_224", "resnet152_224")
HTFE4 = ("htfe_cnn", "googlenet", "mobilenet_v2", "resnet18_224")

GROUPS: dict[str, tuple[str, ...]] = {
    "htcnn_yi": tuple(HTCNN_YI),
    "htcnn_akt": tuple(HTCNN_AKT),
    "htresnet": tuple(HTRESNETS),
    "htfe2": ("htfe_cnn", "resnet18_224"),
    "htfe3": ("htresnet10", "resnet18_224", "resnet34_224"),
    "htfe4": HTFE4,
    "htfe8": (*HTFE4, *LARGE_RESNETS),
    "htfe9": (*SMALL_RESNETS, "resnet18_224", *LARGE_RESNETS),
    "heterofl": tuple(HETEROFL),
}

# In the papers; a group that is not here has features of several widths.
FEATURES: dict[str, int] = {
    "htcnn_yi": 500,
    "htcnn_akt": 1000,
    "htresnet": 1000,
    "htfe2": 512,
    "htfe3": 512,
    "htfe4": 512,
    "htfe8": 512,
    "htfe9": 512,
}
