"""Dirichlet label skew in its two meanings; they differ, so they have two names."""

from typing import Any

import numpy as np

from pfljax.data.partitions.base import (
    UNUSED,
    Partition,
    check_minimum,
    from_owner,
    repair,
    start,
)


def dirichlet_over_clients(
    labels: Any,
    num_clients: int,
    seed: int,
    *,
    alpha: float = 0.5,
    min_size: int = 1,
    balance: bool = False,
) -> Partition:
    """Each class is divided over the clients by one draw of Dir(alpha 1_C).

    Yurochkin et al. 2019, NIID-Bench, SuPerFed's code. `balance` gives nothing more to
    a client that has N / C rows. `min_size` is reached by `repair`, without redraws. A
    large alpha is IID in labels and sizes, a small one gives a class to few clients.
    """
    labels, rng = start(labels, num_clients, seed)
    _positive("alpha", alpha)
    owner = np.full(len(labels), UNUSED)
    size = np.zeros(num_clients, np.int64)
    for label in range(int(labels.max()) + 1):
        rows = rng.permutation(np.flatnonzero(labels == label))
        share = rng.dirichlet(np.full(num_clients, alpha))
        if balance:
            share = _usable(share, size < len(labels) / num_clients)
        bounds = (np.cumsum(share)[:-1] * len(rows)).astype(np.int64)
        taken = np.diff(bounds, prepend=0, append=len(rows))
        owner[rows] = np.repeat(np.arange(num_clients), taken)
        size += taken
    return from_owner(repair(owner, num_clients, min_size, rng), num_clients)


def dirichlet_over_classes(
    labels: Any,
    num_clients: int,
    seed: int,
    *,
    alpha: float = 0.5,
    min_size: int = 1,
) -> Partition:
    """Each client has its own class mixture q_k ~ Dir(alpha p), p the class shares.

    Hsu et al. 2019 (note that p sums to 1, so alpha = 1 is already skewed). Sizes are
    equal within one row and every row is used. Clients draw labels without replacement;
    where a class has run out, what is missing is drawn again from the classes left.
    `min_size` is only checked, for sizes are equal already.
    """
    labels, rng = start(labels, num_clients, seed)
    _positive("alpha", alpha)
    check_minimum(min_size, num_clients, len(labels))
    supply = np.bincount(labels)
    size = len(labels) // num_clients + (
        np.arange(num_clients) < len(labels) % num_clients
    )
    counts = _draw_counts(rng, _mixtures(rng, alpha, supply, num_clients), size, supply)
    owner = np.empty(len(labels), np.int64)
    for label in range(len(supply)):
        rows = rng.permutation(np.flatnonzero(labels == label))
        owner[rows] = np.repeat(np.arange(num_clients), counts[:, label])
    return from_owner(owner, num_clients)


def _usable(share: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """`share` over the allowed only, summing to 1; uniform where it has no mass."""
    share = np.where(allowed, share, 0.0)
    share = share if np.sum(share) > 0 else allowed.astype(float)
    return share / np.sum(share)


def _mixtures(rng: Any, alpha: float, supply: np.ndarray, count: int) -> np.ndarray:
    """f64[C, K]: draws of Dir(alpha * class shares); a class without rows has 0."""
    present = np.flatnonzero(supply)
    mixture = np.zeros((count, len(supply)))
    mixture[:, present] = rng.dirichlet(
        alpha * supply[present] / np.sum(supply), size=count
    )
    return mixture


def _draw_counts(
    rng: Any, mixture: np.ndarray, size: np.ndarray, supply: np.ndarray
) -> np.ndarray:
    """Rows i64[C, K] of each class for each client, without replacement.

    All clients ask at once; where a class is asked for beyond its supply, its rows go
    to the requests at random. Such a pass uses up the class, so there are at most
    K + 1 passes.
    """
    counts = np.zeros(mixture.shape, np.int64)
    left, short = supply.copy(), size.copy()
    while np.any(short):
        who = np.flatnonzero(short)
        odds = mixture[who] * (left > 0)
        odds[np.sum(odds, axis=1) <= 0] = left
        odds /= np.sum(odds, axis=1, keepdims=True)
        given = rng.multinomial(short[who], odds)
        for label in np.flatnonzero(np.sum(given, axis=0) > left):
            given[:, label] = rng.multivariate_hypergeometric(
                given[:, label], left[label], method="marginals"
            )
        counts[who] += given
        short[who] -= np.sum(given, axis=1)
        left = left - np.sum(given, axis=0)
    return counts


def _positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}; choose a number > 0")
