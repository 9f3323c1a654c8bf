"""A fixed number of classes for each client, in equal parts or by a power law."""

from typing import Any

import numpy as np

from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Count, NotNegative
from pfljax.data.partitions.base import (
    UNUSED,
    Partition,
    convert_labels,
    equal_sizes,
    from_owner,
    shuffle_classes,
)
from pfljax.data.values import Clients, Seed


@component
def classes(
    labels: Any, num_clients: Clients, seed: Seed, *, per_client: AtLeastOne = 2
) -> Partition:
    """Gives client k the class k mod K and `per_client` - 1 others (NIID-Bench).

    A class is divided equally among its owners; a class without an owner is unused.

    Args:
      per_client: classes of a client.

    Raises:
        ValueError: `per_client` is not between 1 and the number of classes.
    """
    labels = convert_labels(labels, num_clients)
    rng = np.random.default_rng(seed)
    owns = _owned_classes(num_clients, int(labels.max()) + 1, per_client, rng)
    owner = np.full(len(labels), UNUSED)
    for label, index in shuffle_classes(labels, rng):
        owners = np.flatnonzero(owns[:, label])
        # With few clients a class may have no owner; its examples stay unused.
        if len(owners):
            owner[index] = np.repeat(owners, equal_sizes(len(index), len(owners)))
    return from_owner(owner, num_clients)


@component
def classes_lognormal(
    labels: Any,
    num_clients: Clients,
    seed: Seed,
    *,
    per_client: AtLeastOne = 2,
    min_per_class: Count = 5,
    sigma: NotNegative = 2.0,
) -> Partition:
    """Gives client k the classes k, k + 1, ... mod K, with power-law sizes.

    This is FedProx's MNIST: Li et al., MLSys 2020, `generate_niid.py`. A client has
    `min_per_class` examples of each of its classes, and a share of the rest by
    LogNormal(0, sigma), rounded down. A few examples stay unused, as does a class
    without an owner.

    Args:
      per_client: classes of a client.
      min_per_class: examples that a client has at least of each class.
      sigma: spread of the sizes; 0 for equal sizes.

    Raises:
        ValueError: `per_client` is not between 1 and the number of classes, or a class
            is too small for its owners.
    """
    labels = convert_labels(labels, num_clients)
    num_classes = int(labels.max()) + 1
    _check_per_client(per_client, num_classes)
    rng = np.random.default_rng(seed)
    offset = np.arange(per_client)
    owned = (np.arange(num_clients)[:, None] + offset) % num_classes
    draw = rng.lognormal(0.0, sigma, owned.shape)
    owner = np.full(len(labels), UNUSED)
    for label, index in shuffle_classes(labels, rng):
        owners, _ = np.nonzero(owned == label)
        left = len(index) - min_per_class * len(owners)
        if left < 0:
            raise ValueError(
                f"class {label} has {len(index)} examples for {len(owners)} clients of "
                f"{min_per_class} at least; choose min_per_class <= "
                f"{len(index) // len(owners)}"
            )
        share = draw[owned == label]
        size = min_per_class + (left * share / share.sum()).astype(np.int64)
        owner[index[: size.sum()]] = np.repeat(owners, size)
    return from_owner(owner, num_clients)


def _owned_classes(
    num_clients: int, num_classes: int, per_client: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws per_client - 1 random classes beside k mod K for client k, bool[C, K]."""
    _check_per_client(per_client, num_classes)
    clients = np.arange(num_clients)
    lot = rng.random((num_clients, num_classes))
    # Lots are drawn in [0, 1): -1 puts a client's first class before all others.
    lot[clients, clients % num_classes] = -1.0
    chosen = np.argsort(lot, axis=1)[:, :per_client]
    owns = np.zeros(lot.shape, bool)
    owns[clients[:, None], chosen] = True
    return owns


def _check_per_client(per_client: int, num_classes: int) -> None:
    if per_client > num_classes:
        raise ValueError(
            f"per_client is {per_client}, but there are {num_classes} classes; "
            f"choose 1 <= per_client <= {num_classes}"
        )
