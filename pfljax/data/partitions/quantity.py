"""Rows at random, sizes by a law: equal, a power law, or log-normal."""

from typing import Any

import numpy as np

from pfljax.data.edge import Clients, Seed
from pfljax.data.partitions.base import (
    Partition,
    apportion,
    check_minimum,
    checked_labels,
    from_owner,
)
from pfljax.registry import Count, NotNegative, checked


@checked
def iid(labels: Any, num_clients: Clients, seed: Seed) -> Partition:
    """Every row once, at random; sizes differ by one row at most."""
    labels = checked_labels(labels, num_clients)
    rng = np.random.default_rng(seed)
    num_rows = len(labels)
    owner = np.empty(num_rows, np.int64)
    owner[rng.permutation(num_rows)] = np.arange(num_rows) % num_clients
    return from_owner(owner, num_clients)


@checked
def quantity_power_law(
    labels: Any,
    num_clients: Clients,
    seed: Seed,
    *,
    exponent: NotNegative = 1.0,
    min_size: Count = 1,
) -> Partition:
    """Rows at random, size of client k proportional to (k + 1) ** -exponent.

    exponent = 0 is `iid`. Every row is used; nobody has less than `min_size`.

    Args:
      exponent: of the sizes; 0 is IID.
      min_size: rows that a client has at least.
    """
    labels = checked_labels(labels, num_clients)
    rng = np.random.default_rng(seed)
    share = np.arange(1, num_clients + 1, dtype=float) ** -exponent
    return _by_share(len(labels), share, min_size, rng)


@checked
def quantity_lognormal(
    labels: Any,
    num_clients: Clients,
    seed: Seed,
    *,
    sigma: NotNegative = 1.0,
    min_size: Count = 1,
) -> Partition:
    """Rows at random, sizes proportional to draws of LogNormal(0, sigma).

    sigma = 0 is `iid`. Every row is used; nobody has less than `min_size`.

    Args:
      sigma: spread of the sizes; 0 is IID.
      min_size: rows that a client has at least.
    """
    labels = checked_labels(labels, num_clients)
    rng = np.random.default_rng(seed)
    share = rng.lognormal(0.0, sigma, num_clients)
    return _by_share(len(labels), share, min_size, rng)


def _by_share(
    num_rows: int, share: np.ndarray, min_size: int, rng: np.random.Generator
) -> Partition:
    """Random rows, `min_size` for everybody and the others as `share` f64[C]."""
    num_clients = len(share)
    check_minimum(min_size, num_clients, num_rows)
    size = min_size + apportion(num_rows - min_size * num_clients, share)
    owner = np.empty(num_rows, np.int64)
    owner[rng.permutation(num_rows)] = np.repeat(np.arange(num_clients), size)
    return from_owner(owner, num_clients)
