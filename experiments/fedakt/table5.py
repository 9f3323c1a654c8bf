"""FedAKT, Table 5: five ResNets on Tiny-ImageNet, 20 clients (JSA 2025).

    python experiments/fedakt/table5.py --scale small
    pfljax prepare tiny_imagenet --raw FOLDER
    python experiments/fedakt/table5.py --scale paper

The models are ResNet-4, 6, 8, 10 and 18, whose features are pooled to 1000. The adapter
is the body of ResNet-4. In the paper the heads are FC2 and FC3 of the five CNNs. Here
each head is the last layer, which is the same for all. We could not read the paper's
numbers; FedAKT is "higher than most baselines". The small scale has every tenth example
of CIFAR-10, ten rounds, and ResNets with an eighth of the channels.
"""

from protocol import LATER, METHODS, Column, column, main


def of_resnets(dataset: str, skew: str | float) -> Column:
    """The problem, under a name other than that of Table 3's CNNs."""
    made = column(dataset, skew, group="htresnet", quick=dataset == "cifar10")
    return made._replace(name=f"{made.name}, ResNets")


COLUMNS = [
    of_resnets(dataset, skew)
    for dataset in ("tiny_imagenet", "cifar10")
    for skew in ("pathological", 0.1)
]

if __name__ == "__main__":
    main(__doc__, "table5", COLUMNS, METHODS, LATER)
