"""The record of a partition, and the mechanics that all ways of dealing rows share."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax.data.edge import as_integers, brief

UNUSED = -1  # the owner of a row that no client holds


class Partition(NamedTuple):
    """Client k holds rows order[offset_k : offset_k + size_k] of the arrays."""

    order: np.ndarray  # i64[R], row numbers grouped by client
    offset: np.ndarray  # i64[C]
    size: np.ndarray  # i64[C]


def from_owner(owner: np.ndarray, num_clients: int) -> Partition:
    """The partition in which client `owner[i]` holds row i; owner i64[N] or UNUSED."""
    size = np.bincount(owner[owner >= 0], minlength=num_clients)
    unused = int(np.sum(owner < 0))
    # UNUSED sorts before every client, and a stable sort keeps the order of the data.
    order = np.argsort(owner, kind="stable")[unused:]
    return Partition(order=order, offset=offsets(size), size=size)


def from_rows(rows_of_client: Sequence[Sequence[int] | np.ndarray]) -> Partition:
    """The partition given by one list of row numbers for each client.

    Raises:
        ValueError: there is no list, or a client's rows are no whole numbers.
    """
    if not isinstance(rows_of_client, Sequence | np.ndarray) or not len(rows_of_client):
        raise ValueError(
            f"rows of clients are {brief(rows_of_client)}; expected one list of rows "
            "for each client"
        )
    lists = [
        as_integers(f"rows of client {number}", rows, "[n]").astype(np.int64)
        for number, rows in enumerate(rows_of_client)
    ]
    size = np.array([len(rows) for rows in lists], np.int64)
    return Partition(order=np.concatenate(lists), offset=offsets(size), size=size)


def offsets(size: np.ndarray) -> np.ndarray:
    """i64[C]: the first row of each client, where rows are grouped by client."""
    return np.cumsum(size) - size


def rank(size: np.ndarray) -> np.ndarray:
    """0, 1, ... size_k - 1 for each client in turn: i64[R]."""
    first_row = np.repeat(offsets(size), size)
    return np.arange(len(first_row)) - first_row


def checked_labels(labels: Any, num_clients: int) -> np.ndarray:
    """Labels as i64[N].

    Raises:
        ValueError: labels that are no integers, or fewer rows than clients.
    """
    labels = as_integers("labels", labels)
    if num_clients > len(labels):
        raise ValueError(
            f"num_clients is {num_clients}, but there are {len(labels)} rows; "
            f"choose num_clients <= {len(labels)}"
        )
    return labels.astype(np.int64)


def check_partition(partition: Partition, num_rows: int) -> None:
    """ValueError unless `partition` deals some of `num_rows` rows, each once."""
    for name, values in partition._asdict().items():
        if not isinstance(values, np.ndarray):
            raise ValueError(
                f"a Partition's {name} is {brief(values)}; expected an array of "
                "integers: from_rows makes a Partition of lists"
            )
        as_integers(f"a Partition's {name}s", values)
    order = partition.order
    if len(partition.offset) != len(partition.size):
        raise ValueError(
            f"a Partition has {len(partition.offset)} offsets and "
            f"{len(partition.size)} sizes; expected one of each a client"
        )
    if np.any(partition.size < 0):
        raise ValueError(
            f"a Partition has a client of {partition.size.min()} rows; expected >= 0"
        )
    if np.any(partition.offset != offsets(partition.size)):
        raise ValueError("a Partition's rows must be grouped by client, without gaps")
    if np.sum(partition.size) != len(order):
        raise ValueError(
            f"a Partition of {len(order)} rows has sizes that sum to "
            f"{np.sum(partition.size)}"
        )
    if len(order) and not 0 <= order.min() <= order.max() < num_rows:
        raise ValueError(f"a Partition names rows outside of 0 .. {num_rows - 1}")
    if np.any(np.bincount(order, minlength=num_rows) > 1):
        raise ValueError("a Partition gives a row to two clients; give each row once")


def check_minimum(min_size: int, num_clients: int, num_rows: int) -> None:
    """ValueError unless `num_clients` clients can hold `min_size` rows each."""
    if min_size < 0 or min_size * num_clients > num_rows:
        raise ValueError(
            f"min_size is {min_size} for {num_clients} clients on {num_rows} rows; "
            f"choose 0 <= min_size <= {num_rows // num_clients}, or fewer clients"
        )


def equal_sizes(num_rows: int, num_clients: int) -> np.ndarray:
    """i64[C] that sum to `num_rows` and differ by one at most, larger ones first."""
    extra = np.arange(num_clients) < num_rows % num_clients
    return num_rows // num_clients + extra


def apportion(total: int, share: np.ndarray) -> np.ndarray:
    """Whole numbers i64[C] that sum to `total`, as `share` by largest remainder.

    Raises:
        ValueError: the shares are beyond what a float64 holds.
    """
    with np.errstate(over="ignore"):
        largest = max(total, 1) * np.sum(share)
    if not 0 < largest < np.inf:
        raise ValueError(
            f"shares of the rows from {np.min(share):.2g} to {np.max(share):.2g} are "
            "beyond a float64; choose a smaller sigma or exponent"
        )
    exact = total * share / np.sum(share)
    count = np.floor(exact).astype(np.int64)
    missing = total - int(np.sum(count))
    # The most negative differences are the largest remainders.
    count[np.argsort(count - exact, kind="stable")[:missing]] += 1
    return count


def repair(
    owner: np.ndarray, num_clients: int, min_size: int, rng: np.random.Generator
) -> np.ndarray:
    """`owner` with rows moved from the largest clients until all have `min_size`.

    The largest are levelled down together and what moves is drawn at random. One pass:
    it ends for every input. ValueError where there are too few rows.
    """
    size = np.bincount(owner[owner >= 0], minlength=num_clients)
    check_minimum(min_size, num_clients, int(np.sum(size)))
    need = np.maximum(min_size - size, 0)
    num_moved = int(np.sum(need))
    if num_moved == 0:
        return owner
    # Shuffled before the stable sort: which rows of a client are spare is chance.
    rows = rng.permutation(np.flatnonzero(owner >= 0))
    rows = rows[np.argsort(owner[rows], kind="stable")]
    spare = rows[rank(size) >= _level(size, num_moved)]
    moved = rng.choice(spare, num_moved, replace=False)
    owner = owner.copy()
    owner[moved] = np.repeat(np.arange(num_clients), need)
    return owner


def _level(size: np.ndarray, num_moved: int) -> int:
    """The greatest level whose overflow is at least `num_moved`, by bisection.

    The overflow of a level is the sum over clients of max(size - level, 0).
    """
    low = 0
    high = int(np.max(size))
    while low < high:
        middle = (low + high + 1) // 2
        overflow = np.sum(np.maximum(size - middle, 0))
        if overflow >= num_moved:
            low = middle
        else:
            high = middle - 1
    return low
