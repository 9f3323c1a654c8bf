"""The record of a partition, and what the partitions share."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax.data.values import as_integers, brief

Indices = Sequence[int] | np.ndarray

UNUSED = -1  # the owner of an example that no client holds


class Partition(NamedTuple):
    """Client k holds the examples order[offset_k : offset_k + size_k] of the arrays."""

    order: np.ndarray  # i64[R], indices of examples, grouped by client
    size: np.ndarray  # i64[C]
    names: tuple[str, ...] = ()  # of the clients; () if they are the numbers 0 .. C-1

    @property
    def offset(self) -> np.ndarray:
        """The place in `order` of each client's first example, i64[C]."""
        return offsets(self.size)


def from_owner(owner: np.ndarray, num_clients: int) -> Partition:
    """Makes the partition in which client `owner[i]`, or UNUSED, holds example i."""
    size = np.bincount(owner[owner >= 0], minlength=num_clients)
    unused = int(np.sum(owner < 0))
    # UNUSED sorts before every client, and a stable sort keeps the order of the data.
    order = np.argsort(owner, kind="stable")[unused:]
    return Partition(order=order, size=size)


def from_indices(indices: Sequence[Indices] | Mapping[Any, Indices]) -> Partition:
    """Makes a partition from one list of indices of examples for each client.

    A mapping from clients to lists is taken in its order, and names the clients.

    Raises:
        ValueError: there is no list, or a client's indices are no integers.
    """
    names: Sequence[Any] = ()
    if isinstance(indices, Mapping):
        names, indices = [*indices], [*indices.values()]
    if not isinstance(indices, Sequence | np.ndarray) or not len(indices):
        raise ValueError(
            f"indices are {brief(indices)}; expected one list for each client"
        )
    lists = [
        as_integers(f"indices of client {name}", each, "[n]").astype(np.int64)
        for name, each in zip(names or range(len(indices)), indices, strict=True)
    ]
    size = np.array([len(each) for each in lists], np.int64)
    names = tuple(map(str, names))
    are_numbers = names == tuple(map(str, range(len(names))))
    return Partition(np.concatenate(lists), size, () if are_numbers else names)


def offsets(size: np.ndarray) -> np.ndarray:
    """Returns where each part begins if parts of these sizes follow one another."""
    return np.cumsum(size) - size


def rank(size: np.ndarray) -> np.ndarray:
    """Returns 0, 1, ... size_k - 1 for each client in turn, i64[R]."""
    first = np.repeat(offsets(size), size)
    return np.arange(len(first)) - first


def convert_labels(labels: Any, num_clients: int) -> np.ndarray:
    """Converts labels to i64[N].

    Raises:
        ValueError: labels are no integers, or there are fewer examples than clients.
    """
    labels = as_integers("labels", labels)
    if num_clients > len(labels):
        raise ValueError(
            f"num_clients is {num_clients}, but there are {len(labels)} examples; "
            f"choose num_clients <= {len(labels)}"
        )
    return labels.astype(np.int64)


def shuffle_classes(
    labels: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields each class up to the largest label, and its examples in random order."""
    for label in range(int(labels.max()) + 1):
        yield label, rng.permutation(np.flatnonzero(labels == label))


def check_partition(partition: Partition, num_examples: int) -> None:
    """Checks that `partition` deals some of so many examples, each once.

    Raises:
        ValueError: it does not, or a client has no examples.
    """
    order = as_integers("a Partition's order", partition.order)
    size = as_integers("a Partition's sizes", partition.size)
    if np.any(size < 0) or np.sum(size) != len(order):
        raise ValueError(
            f"a Partition of {len(order)} examples has sizes {brief(size)}; expected "
            "sizes >= 0 that sum to this: from_indices makes a Partition of lists"
        )
    if len(order) and not 0 <= order.min() <= order.max() < num_examples:
        raise ValueError(f"a Partition has indices outside of 0 .. {num_examples - 1}")
    if np.any(np.bincount(order, minlength=num_examples) > 1):
        raise ValueError("a Partition gives an example to two clients; give it once")
    empty = int(np.sum(size == 0))
    if empty:
        raise ValueError(
            f"{empty} of {len(size)} clients have no examples; choose fewer clients, "
            "or min_size >= 1 where the partition has it"
        )


def check_minimum(min_size: int, num_clients: int, num_examples: int) -> None:
    """Raises a ValueError if not every client can hold `min_size` examples."""
    if min_size < 0 or min_size * num_clients > num_examples:
        raise ValueError(
            f"min_size is {min_size} for {num_clients} clients on {num_examples} "
            f"examples; choose 0 <= min_size <= {num_examples // num_clients}, or "
            "fewer clients"
        )


def equal_sizes(total: int, num_clients: int) -> np.ndarray:
    """Returns sizes i64[C] that sum to `total` and differ by one, larger ones first."""
    extra = np.arange(num_clients) < total % num_clients
    return total // num_clients + extra


def apportion(total: int, share: np.ndarray) -> np.ndarray:
    """Rounds shares of `total` to whole numbers i64[C], by the largest remainder.

    Raises:
        ValueError: the shares are beyond a float64.
    """
    with np.errstate(over="ignore"):
        largest = max(total, 1) * np.sum(share)
    if not 0 < largest < np.inf:
        raise ValueError(
            f"shares of the examples from {np.min(share):.2g} to {np.max(share):.2g} "
            "are beyond a float64; choose a smaller sigma or exponent"
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
    """Moves random examples from the largest clients until all have `min_size`.

    The largest clients are levelled down together, in one pass.

    Raises:
        ValueError: there are too few examples.
    """
    size = np.bincount(owner[owner >= 0], minlength=num_clients)
    check_minimum(min_size, num_clients, int(np.sum(size)))
    need = np.maximum(min_size - size, 0)
    num_moved = int(np.sum(need))
    if num_moved == 0:
        return owner
    # Shuffling before the stable sort makes the spare examples of a client random.
    index = rng.permutation(np.flatnonzero(owner >= 0))
    index = index[np.argsort(owner[index], kind="stable")]
    spare = index[rank(size) >= _level(size, num_moved)]
    moved = rng.choice(spare, num_moved, replace=False)
    owner = owner.copy()
    owner[moved] = np.repeat(np.arange(num_clients), need)
    return owner


def _level(size: np.ndarray, num_moved: int) -> int:
    """Finds the greatest level whose overflow is at least `num_moved`, by bisection.

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
