"""Clients of Fashion-MNIST that differ in one property: size, labels, or classes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from vem import FASHION, TRAIN, rows_of

from pfljax import data
from pfljax.data import Arrays, Federation
from pfljax.data.partitions.base import from_owner

CLIENTS = 50
SIGMA = 1.0  # of the logarithm of a client's rows


class Differing(NamedTuple):
    """Clients that differ in one thing."""

    federation: Callable[[bool, int], Federation]  # by small, seed
    measure: Callable[[Federation], np.ndarray]  # f[C] of a federation
    axis: str


def dealt(
    arrays: Arrays, owner: np.ndarray, seed: int, labels: np.ndarray | None = None
) -> Federation:
    """Clients of these rows, tested on the official rows of their classes."""
    rows = arrays if labels is None else arrays._replace(y=labels)
    return data.federate(
        rows,
        from_owner(owner, CLIENTS),
        num_clients=None,
        seed=seed,
        validation=0.0,
        test_from="official" if labels is not None else "official_classes",
    )


def by_size(small: bool, seed: int) -> Federation:
    """Rows by a lognormal law, at random."""
    return data.federate(
        rows_of(FASHION, small),
        f"quantity_lognormal:sigma={SIGMA}",
        num_clients=CLIENTS,
        seed=seed,
        validation=0.0,
        test_from="official",
    )


def shares_of_noise() -> np.ndarray:
    """The share of client k's labels that are drawn anew."""
    return np.arange(CLIENTS) / CLIENTS


def by_noise(small: bool, seed: int) -> Federation:
    """Equal rows; a share of each client's training labels is drawn at random."""
    arrays = rows_of(FASHION, small)
    draws = np.random.default_rng(seed)
    owner = np.full(len(arrays.y), -1)
    rows = draws.permutation(np.flatnonzero(arrays.official == TRAIN))
    owner[rows] = np.arange(len(rows)) % CLIENTS
    wrong = (owner >= 0) & (draws.random(len(owner)) < shares_of_noise()[owner])
    labels = arrays.y.copy()
    labels[wrong] = draws.integers(0, arrays.num_classes, wrong.sum())
    return dealt(arrays, owner, seed, labels)


def by_skew(small: bool, seed: int) -> Federation:
    """Equal rows: client k has k mod 10 + 1 classes."""
    arrays = rows_of(FASHION, small)
    draws = np.random.default_rng(seed)
    train = arrays.official == TRAIN
    of_class = [
        draws.permutation(np.flatnonzero(train & (arrays.y == label))).tolist()
        for label in range(arrays.num_classes)
    ]
    # Half of an even share: no class is used up by those that have few.
    each = int(train.sum()) // CLIENTS // 2
    owner = np.full(len(arrays.y), -1)
    for client in range(CLIENTS):
        classes = draws.permutation(arrays.num_classes)[: client % 10 + 1]
        for place in range(each):
            label = classes[place % len(classes)]
            # A class may be used up: another one, of which most is left.
            if not of_class[label]:
                label = max(classes, key=lambda label: len(of_class[label]))
            owner[of_class[label].pop()] = client
    return dealt(arrays, owner, seed)


def rows_by_client(federation: Federation) -> np.ndarray:
    """Training rows of each client."""
    return np.asarray(federation.train.size)


def classes_by_client(federation: Federation) -> np.ndarray:
    """Classes of each client."""
    histogram = np.asarray(federation.manifest["class_histogram"])
    return (histogram > 0).sum(1)


DIFFERING = {
    "size": Differing(by_size, rows_by_client, "training rows"),
    "noise": Differing(
        by_noise, lambda federation: shares_of_noise(), "share of random labels"
    ),
    "skew": Differing(by_skew, classes_by_client, "classes of a client"),
}
