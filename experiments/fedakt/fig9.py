"""FedAKT, Figure 9: a larger adapter, the body of CNN-5 instead of CNN-4 (JSA 2025).

    python experiments/fedakt/fig9.py --scale small

With Tiny-ImageNet's ResNets it is the body of ResNet-6 instead of ResNet-4. We could
not read the paper's numbers.
"""

from protocol import METHODS, Column, column, main, models

METHOD = METHODS["FedAKT"]


def with_adapter(made: Column, number: int) -> Column:
    """The problem with the adapter of this number among the group's models, from 1."""

    def proxy(small: bool) -> str:
        return models(made.group, equal_heads=False, small=small)[number - 1]

    return made._replace(
        name=f"{made.name}, adapter {number}",
        experiment=made.experiment.replace(proxy=proxy(small=False)),
        small={**made.small, "proxy": proxy(small=True)},
    )


COLUMNS = [
    *(
        with_adapter(column("cifar10", skew, quick=True), number)
        for skew in ("pathological", 0.1)
        for number in (4, 5)
    ),
    *(
        with_adapter(column("tiny_imagenet", skew, group="htresnet"), number)
        for skew in ("pathological", 0.1)
        for number in (1, 2)
    ),
]

if __name__ == "__main__":
    main(__doc__, "fig9", COLUMNS, {"FedAKT": METHOD})
