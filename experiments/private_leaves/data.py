"""Two halves of Shakespeare's roles: one to pretrain a model, one to personalise it."""

from typing import Literal

from pfljax.data import Arrays, from_arrays, load


def roles(*, half: Literal["first", "second"], min_size: int = 100) -> Arrays:
    """Every second role with so many examples of 80 characters and what follows each.

    Each character is seen once. The last fifth of a role is its official test.
    """
    every = load("shakespeare_roles", task="tokens", stride=80, min_size=min_size)
    assert every.client is not None
    chosen = every.client % 2 == int(half == "second")
    return from_arrays(
        every.x[chosen],
        every.y[chosen],
        client=every.client[chosen] // 2,
        official=every.official[chosen],
        task="tokens",
        num_classes=every.num_classes,
        scale=1.0,
        name=f"roles_{half}",
        source=every.source,
        class_names=every.class_names,
    )
