"""Random examples, in sizes that are equal, or follow a power law or a log-normal."""

from typing import Any

import numpy as np

from pfljax.core.factories import component
from pfljax.core.ranges import Count, NotNegative
from pfljax.data.partitions.base import (
    Partition,
    apportion,
    check_minimum,
    convert_labels,
    from_owner,
)
from pfljax.data.values import Clients, Seed


@component
def iid(labels: Any, num_clients: Clients, seed: Seed) -> Partition:
    """Divides the examples at random into parts of equal size."""
    labels = convert_labels(labels, num_clients)
    rng = np.random.default_rng(seed)
    count = len(labels)
    owner = np.empty(count, np.int64)
    owner[rng.permutation(count)] = np.arange(count) % num_clients
    return from_owner(owner, num_clients)


@component
def quantity_power_law(
    labels: Any,
    num_clients: Clients,
    seed: Seed,
    *,
    exponent: NotNegative = 1.0,
    min_size: Count = 1,
) -> Partition:
    """Gives client k random examples, in proportion to (k + 1) ** -exponent.

    exponent = 0 is `iid`. Every example is used; no client has fewer than `min_size`.

    Args:
      exponent: exponent of the sizes; 0 is IID.
      min_size: examples that a client has at least.
    """
    labels = convert_labels(labels, num_clients)
    rng = np.random.default_rng(seed)
    share = np.arange(1, num_clients + 1, dtype=float) ** -exponent
    return _by_share(len(labels), share, min_size, rng)


@component
def quantity_lognormal(
    labels: Any,
    num_clients: Clients,
    seed: Seed,
    *,
    sigma: NotNegative = 1.0,
    min_size: Count = 1,
) -> Partition:
    """Gives random examples, in proportion to draws from LogNormal(0, sigma).

    sigma = 0 is `iid`. Every example is used; no client has fewer than `min_size`.

    Args:
      sigma: spread of the sizes; 0 is IID.
      min_size: examples that a client has at least.
    """
    labels = convert_labels(labels, num_clients)
    rng = np.random.default_rng(seed)
    share = rng.lognormal(0.0, sigma, num_clients)
    return _by_share(len(labels), share, min_size, rng)


def _by_share(
    total: int, share: np.ndarray, min_size: int, rng: np.random.Generator
) -> Partition:
    """Deals `min_size` random examples to each client and the others by `share`."""
    num_clients = len(share)
    check_minimum(min_size, num_clients, total)
    size = min_size + apportion(total - min_size * num_clients, share)
    owner = np.empty(total, np.int64)
    owner[rng.permutation(total)] = np.repeat(np.arange(num_clients), size)
    return from_owner(owner, num_clients)
