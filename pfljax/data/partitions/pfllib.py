"""The two partitions of PFLlib and HtFLlib, replayed number by number.

Zhang et al., PFLlib, JMLR 2025, https://arxiv.org/abs/2312.04992. Its generators draw
from NumPy's global stream, seeded with 1, on examples in the order of the data set:
train, then test (`examples="all"`). With these in that order, each client has the same
examples here and there; NumPy has frozen the stream.

The split is not replayed: PFLlib takes a random 75 % of each client's examples for
training. Here `pfljax.data.split` splits them, by the seed of the run.

A client has at least `min_size` = 40 examples, so that a quarter of them is a batch of
10, or half of an equal share if there are few data.
"""

from typing import Annotated, Any

import numpy as np

from pfljax.core.factories import component
from pfljax.core.ranges import AT_LEAST_ZERO, AtLeastOne, Count, Range
from pfljax.data.partitions.base import UNUSED, Partition, convert_labels, from_owner
from pfljax.data.partitions.dirichlet import Alpha
from pfljax.data.values import Clients, Seed

TRIES = 1000  # draws of the whole federation before giving up
NumpySeed = Annotated[
    int, AT_LEAST_ZERO, Range(lambda value: value < 2**32, "less than 2**32")
]


@component
def pfllib_pathological(
    labels: Any,
    num_clients: Clients,
    seed: Seed,
    *,
    per_client: AtLeastOne = 2,
    balance: bool = False,
    min_size: Count = 40,
    stream: NumpySeed = 1,
) -> Partition:
    """PFLlib's pathological partition: `per_client` classes each, of random sizes.

    Class after class goes to the first ceil(C / K per_client) clients that still want
    one, so clients come in blocks with equal sets of classes. All but the last of them
    have a number of examples drawn between a tenth of an equal share and that share,
    the last has the rest; with `balance` shares are equal. The run's seed changes
    nothing, `stream` = 1 is PFLlib's.

    Args:
      per_client: classes of a client.
      balance: equal shares of a class.
      min_size: examples that a client has at least.
      stream: seed of the draws, whatever the run's.

    Raises:
        ValueError: a class has too few examples for its clients.
    """
    labels = convert_labels(labels, num_clients)
    rng = np.random.RandomState(stream)
    size_of_class = np.bincount(labels)
    num_classes = len(size_of_class)
    least = _least(min_size, len(labels), num_clients)
    receivers = int(np.ceil(num_clients / num_classes * per_client))
    wanted = np.full(num_clients, per_client)
    owner = np.full(len(labels), UNUSED)
    for label, count in enumerate(size_of_class):
        clients = np.flatnonzero(wanted)[:receivers]
        # Every client has its classes: PFLlib leaves the other examples out as well.
        if not len(clients):
            break
        floor = least / num_classes
        sizes = _class_sizes(label, int(count), len(clients), floor, balance, rng)
        owner[labels == label] = np.repeat(clients, sizes)
        wanted[clients] -= 1
    return from_owner(owner, num_clients)


@component
def pfllib_dirichlet(
    labels: Any,
    num_clients: Clients,
    seed: Seed,
    *,
    alpha: Alpha = 0.1,
    min_size: Count = 40,
    stream: NumpySeed = 1,
) -> Partition:
    """PFLlib's Dirichlet partition, which skips clients that have enough examples.

    A client with N / C examples has enough. The whole federation is drawn anew until
    its smallest client has `min_size`. The run's seed changes nothing, `stream` = 1 is
    PFLlib's.

    Args:
      alpha: concentration; small gives a class to few clients.
      min_size: examples that a client has at least.
      stream: seed of the draws, whatever the run's.

    Raises:
        ValueError: no draw of a thousand had enough examples for every client.
    """
    labels = convert_labels(labels, num_clients)
    rng = np.random.RandomState(stream)
    least = _least(min_size, len(labels), num_clients)
    for _ in range(TRIES):
        owner = _draw_owner(labels, num_clients, alpha, rng)
        size = np.bincount(owner, minlength=num_clients)
        if np.min(size) >= least:
            return from_owner(owner, num_clients)
    raise ValueError(
        f"alpha is {alpha} for {num_clients} clients: none of {TRIES} draws gave every "
        f"client {least} examples; choose a greater alpha, fewer clients or a smaller "
        "min_size"
    )


def _least(min_size: int, count: int, num_clients: int) -> int:
    """Returns the fewest examples that a client may have."""
    return int(min(min_size, count / num_clients / 2))


def _class_sizes(
    label: int,
    count: int,
    clients: int,
    floor: float,
    balance: bool,
    rng: np.random.RandomState,
) -> list[int]:
    """Divides the `count` examples of a class over so many clients."""
    share = count / clients
    low = int(max(share / 10, floor))
    if clients > 1 and not balance and low >= int(share):
        raise ValueError(
            f"class {label} has {count} examples for {clients} clients: none are left "
            "to draw between the least and an equal share; choose fewer clients"
        )
    if balance:
        sizes = [int(share)] * (clients - 1)
    else:
        sizes = rng.randint(low, max(int(share), low + 1), clients - 1).tolist()
    return [*sizes, count - sum(sizes)]


def _draw_owner(
    labels: np.ndarray, num_clients: int, alpha: float, rng: np.random.RandomState
) -> np.ndarray:
    """Draws the owner of every example, i64[N]; full clients take nothing more."""
    owner = np.empty(len(labels), np.int64)
    size = np.zeros(num_clients, np.int64)
    full = len(labels) / num_clients
    for label in range(int(labels.max()) + 1):
        index = np.flatnonzero(labels == label)
        rng.shuffle(index)
        share = rng.dirichlet(np.repeat(alpha, num_clients))
        share = share * (size < full)
        # With a tiny alpha a class may be drawn for full clients only.
        if not np.sum(share) > 0:
            share = (size < full).astype(float)
        cuts = (np.cumsum(share / np.sum(share)) * len(index)).astype(int)[:-1]
        taken = np.diff(cuts, prepend=0, append=len(index))
        owner[index] = np.repeat(np.arange(num_clients), taken)
        size += taken
    return owner
