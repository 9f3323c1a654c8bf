"""Dirichlet label skew in three meanings, which have three names.

`dirichlet` divides each class over the clients. In the other two each client has a
mixture over the classes; the clients draw one after another, as published, or all at
once, which is less skewed.
"""

from typing import Annotated, Any

import numpy as np

from pfljax.core.factories import component
from pfljax.core.ranges import Count, Range
from pfljax.data.partitions.base import (
    UNUSED,
    Partition,
    convert_labels,
    equal_sizes,
    from_owner,
    repair,
    shuffle_classes,
)
from pfljax.data.values import Clients, Seed

# Beyond these, sums and quotients of the draws leave the range of a float64.
Alpha = Annotated[
    float,
    Range(
        lambda value: 1e-300 <= value <= 1e200,
        "a number > 0, from 1e-300 to 1e200",
        on_host=True,
    ),
]


@component
def dirichlet(
    labels: Any,
    num_clients: Clients,
    seed: Seed,
    *,
    alpha: Alpha = 0.5,
    min_size: Count = 1,
    balance: bool = False,
) -> Partition:
    """Divides each class over the clients by a draw from Dir(alpha).

    Yurochkin et al. 2019, and NIID-Bench. Clients below `min_size` get examples of the
    largest ones, where others draw the whole partition again.

    Args:
      alpha: concentration; small gives a class to few clients, large is IID.
      min_size: examples that a client has at least.
      balance: a client with N / C examples gets no more.
    """
    labels = convert_labels(labels, num_clients)
    rng = np.random.default_rng(seed)
    owner = np.full(len(labels), UNUSED)
    size = np.zeros(num_clients, np.int64)
    for _, index in shuffle_classes(labels, rng):
        share = rng.dirichlet(np.full(num_clients, alpha))
        # A client is always below the mean, so one is always allowed.
        if balance:
            share = _restrict(share, size < len(labels) / num_clients)
        # Cuts of the cumulated share, rounded down: no example is lost to rounding.
        cuts = np.cumsum(share)[:-1] * len(index)
        taken = np.diff(cuts.astype(np.int64), prepend=0, append=len(index))
        owner[index] = np.repeat(np.arange(num_clients), taken)
        size += taken
    return from_owner(repair(owner, num_clients, min_size, rng), num_clients)


@component
def dirichlet_over_classes_by_client(
    labels: Any, num_clients: Clients, seed: Seed, *, alpha: Alpha = 0.5
) -> Partition:
    """Lets each client in turn draw a mixture from Dir(alpha p) and take examples.

    Hsu et al. 2019, https://arxiv.org/abs/1909.06335; p are the class shares, which sum
    to 1, so alpha = 1 is already skewed. A class that has run out is removed and q_k is
    renormalised: the last clients take what is left. Sizes are equal within one
    example and every example is used.

    On the digits with 20 clients, the share of a client's largest class (mean over
    clients and 20 seeds) is 0.92, 0.76 and 0.65 at alpha = 0.1, 0.5 and 1, and 0.73,
    0.62 and 0.56 with `dirichlet_over_classes_at_once`, as measured by `pytest
    tests/data/partitions/test_dirichlet.py -k largest_class`.

    Args:
      alpha: concentration; small is skewed, large follows the class shares.
    """
    labels = convert_labels(labels, num_clients)
    rng = np.random.default_rng(seed)
    left = np.bincount(labels)
    concentration = alpha * left / len(labels)
    size = equal_sizes(len(labels), num_clients)
    counts = np.zeros((num_clients, len(left)), np.int64)
    for client in range(num_clients):
        counts[client] = _take(concentration, int(size[client]), left, rng)
        left = left - counts[client]
    return _deal(labels, counts, rng)


@component
def dirichlet_over_classes_at_once(
    labels: Any, num_clients: Clients, seed: Seed, *, alpha: Alpha = 0.5
) -> Partition:
    """Draws a mixture of classes for each client from Dir(alpha p), all at once.

    Where a class is asked for beyond its supply, its examples go to random requests,
    and what is missing is drawn again from the classes left. All clients are alike in
    law, and less skewed than those of `dirichlet_over_classes_by_client`, which has the
    figures. Sizes are equal within one example and every example is used.

    Args:
      alpha: concentration; small is skewed, large follows the class shares.
    """
    labels = convert_labels(labels, num_clients)
    rng = np.random.default_rng(seed)
    supply = np.bincount(labels)
    size = equal_sizes(len(labels), num_clients)
    mixture = _mixtures(alpha * supply / len(labels), num_clients, rng)
    return _deal(labels, _take_at_once(mixture, size, supply, rng), rng)


def _restrict(share: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Restricts `share` to the allowed, with sum 1; uniform where it has no mass."""
    share = np.where(allowed, share, 0.0)
    if np.sum(share) == 0:
        share = allowed.astype(float)
    return share / np.sum(share)


def _mixtures(
    concentration: np.ndarray, num_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws f64[num_draws, K] of Dir(concentration); 0 where that is 0."""
    present = np.flatnonzero(concentration)
    mixture = np.zeros((num_draws, len(concentration)))
    mixture[:, present] = rng.dirichlet(concentration[present], size=num_draws)
    return mixture


def _take(
    concentration: np.ndarray, size: int, supply: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draws the counts i64[K] of `size` examples that one client takes of `supply`."""
    counts = np.zeros(len(supply), np.int64)
    mixture = np.zeros(len(supply))
    while missing := size - int(np.sum(counts)):
        left = supply - counts
        odds = np.where(left > 0, mixture, 0.0)
        if np.sum(odds) == 0:
            # The first draw, or a small alpha left nothing for these classes. The part
            # of a Dirichlet draw over some classes, renormalised, is a Dirichlet draw
            # again and independent of the rest: drawing it anew is the same law.
            of_classes_left = np.where(left > 0, concentration, 0.0)
            mixture = _mixtures(of_classes_left, 1, rng)[0]
            odds = mixture
        # Labels beyond the supply are rejected, which is what renormalising means: all
        # missing examples drawn at once have the law of those taken one by one.
        drawn = rng.multinomial(missing, odds / np.sum(odds))
        counts += np.minimum(drawn, left)
    return counts


def _take_at_once(
    mixture: np.ndarray, size: np.ndarray, supply: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draws the counts i64[C, K] of each class for each client, without replacement.

    A pass in which a class is asked for beyond its supply uses it up, so there are at
    most K + 1 passes.
    """
    counts = np.zeros(mixture.shape, np.int64)
    left = supply.copy()
    missing = size.copy()
    while np.any(missing):
        asking = np.flatnonzero(missing)
        odds = mixture[asking] * (left > 0)
        # A client whose classes have all run out takes examples of the others.
        odds[np.sum(odds, axis=1) <= 0] = left
        odds /= np.sum(odds, axis=1, keepdims=True)
        drawn = rng.multinomial(missing[asking], odds)
        for label in np.flatnonzero(np.sum(drawn, axis=0) > left):
            # It is as if the requests were in one urn, from which so many are drawn.
            drawn[:, label] = rng.multivariate_hypergeometric(
                drawn[:, label], left[label], method="marginals"
            )
        counts[asking] += drawn
        missing[asking] -= np.sum(drawn, axis=1)
        left -= np.sum(drawn, axis=0)
    return counts


def _deal(
    labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> Partition:
    """Deals random examples of each class by `counts` i64[C, K], which uses up all."""
    num_clients = len(counts)
    owner = np.empty(len(labels), np.int64)
    for label, index in shuffle_classes(labels, rng):
        owner[index] = np.repeat(np.arange(num_clients), counts[:, label])
    return from_owner(owner, num_clients)
