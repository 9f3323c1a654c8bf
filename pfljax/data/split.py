"""Each client's rows into train, validation and test; test sets shared by clients."""

from typing import Any

import numpy as np

from pfljax.data.arrays import OFFICIAL_TEST, Arrays
from pfljax.data.partitions.base import Partition, rank

MAX_BYTES = 2**31  # of test rows that "official_classes" may copy


def check_fractions(test: float, validation: float) -> None:
    """ValueError unless both are shares of the rows and leave some for training."""
    for name, value in (("test", test), ("validation", validation)):
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}; choose a fraction in [0, 1)")
    if test + validation >= 1:
        raise ValueError(
            f"test + validation is {test} + {validation}; leave rows to train on: "
            "choose fractions that sum to less than 1"
        )


def split_rows(
    dealt: Partition,
    labels: np.ndarray,
    test: float,
    validation: float,
    stratified: bool,
    rng: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """(rows i64[R] by client and then train | validation | test, sizes i64[3, C])."""
    n = dealt.size
    client = np.repeat(np.arange(len(n)), n)
    n_test, n_validation = (test * n).astype(np.int64), (validation * n).astype(int)
    sizes = np.stack([n - n_test - n_validation, n_validation, n_test])
    lot = rng.random(len(dealt.order))
    if stratified:
        part = _even_parts(labels[dealt.order], client, lot, sizes, rng)
        place = np.lexsort((lot, part, client))
    else:
        place = np.lexsort((lot, client))
    return dealt.order[place], sizes


def _even_parts(
    labels: np.ndarray, client: np.ndarray, lot: np.ndarray, sizes: np.ndarray, rng: Any
) -> np.ndarray:
    """0, 1 or 2 for each row, i64[R]: `sizes` exactly, evenly over a client's labels.

    Systematic sampling: rows in order of label, every (n / n_part)-th is taken from a
    random start, so a label's share is within one row of its due.
    """
    n = np.sum(sizes, axis=0)
    part = np.zeros(len(labels), np.int64)
    left = np.lexsort((lot, labels, client))
    for which, of in ((2, n), (1, n - sizes[2])):
        start = np.floor(rng.random(len(of)) * of).astype(np.int64)
        owner = client[left]
        step = rank(of) * sizes[which][owner] + start[owner]
        chosen = (step + sizes[which][owner]) // of[owner] > step // of[owner]
        part[left[chosen]] = which
        left = left[~chosen]
    return part


def shared_test(
    arrays: Arrays, order: np.ndarray, dealt: Partition, test_from: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(official test rows to append to the pool, offset i64[C] in them, size i64[C]).

    Clients with the same classes share one region.
    """
    rows = np.flatnonzero(arrays.official == OFFICIAL_TEST)
    count = len(dealt.size)
    if test_from == "official":
        return rows, np.zeros(count, np.int64), np.full(count, len(rows))
    if test_from == "official_own":
        return _own_test(arrays, order, dealt, rows)
    client = np.repeat(np.arange(count), dealt.size)
    held = np.zeros((count, arrays.num_classes), bool)
    held[client, arrays.y[order]] = True
    kinds, kind = np.unique(held, axis=0, return_inverse=True)
    size = kinds @ np.bincount(arrays.y[rows], minlength=arrays.num_classes)
    if np.sum(size) * arrays.x[0].nbytes > MAX_BYTES:
        raise ValueError(
            f"test_from='official_classes' would copy {np.sum(size)} rows for "
            f"{len(kinds)} sets of classes; choose test_from='official'"
        )
    copies = [rows[wanted[arrays.y[rows]]] for wanted in kinds]
    kind = kind.reshape(-1)
    return np.concatenate(copies), (np.cumsum(size) - size)[kind], size[kind]


def _own_test(
    arrays: Arrays, order: np.ndarray, dealt: Partition, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The official test `rows` of the natural client that each client is."""
    if arrays.client is None:
        raise ValueError(
            f"test_from='official_own', but data set {arrays.name!r} has no natural "
            "clients; choose test_from='official'"
        )
    owner = arrays.client[order]
    own = owner[dealt.offset]
    if np.any(owner != np.repeat(own, dealt.size)):
        raise ValueError(
            "test_from='official_own', but a client holds rows of two natural clients; "
            "choose partition='natural'"
        )
    rows = rows[np.argsort(arrays.client[rows], kind="stable")]
    start, end = (
        np.searchsorted(arrays.client[rows], own, side) for side in ("left", "right")
    )
    return rows, start, end - start
