"""The two partitions of PFLlib and HtFLlib, replayed number by number.

Zhang et al., PFLlib, JMLR 2025, https://arxiv.org/abs/2312.04992. Its generators draw
from NumPy's global stream, seeded with 1, on rows in the order of the data set: train
rows, then test rows (`rows="all"`). Given these rows in that order, each client has
here the rows that it has there; NumPy has frozen the stream.

What comes after is not replayed: PFLlib goes on to split each client's rows at random,
75 % for training. Here `pfljax.data.split` does that, by the seed of the run.

A client has at least `min_rows` = 40 rows, so that a quarter of them is a batch of 10;
or half of an equal share, where the data are few.
"""

from typing import Annotated, Any

import numpy as np

from pfljax.data.edge import Clients, Seed
from pfljax.data.partitions.base import UNUSED, Partition, checked_labels, from_owner
from pfljax.data.partitions.dirichlet import Alpha
from pfljax.registry import AT_LEAST_ZERO, AtLeastOne, Count, Range, checked

TRIES = 1000  # draws of the whole federation before giving up
NumpySeed = Annotated[
    int, AT_LEAST_ZERO, Range(lambda value: value < 2**32, "less than 2**32")
]


@checked
def pfllib_pathological(
    labels: Any,
    num_clients: Clients,
    seed: Seed,
    *,
    per_client: AtLeastOne = 2,
    balance: bool = False,
    min_rows: Count = 40,
    stream: NumpySeed = 1,
) -> Partition:
    """Each client has `per_client` classes, handed out in order; sizes are drawn.

    Class after class goes to the first ceil(C / K per_client) clients that still want
    one, so clients come in blocks with equal sets of classes. All but the last of them
    have a number of its rows drawn between a tenth of an equal share and that share,
    the last has the rest; with `balance` shares are equal. The run's seed changes
    nothing, `stream` = 1 is PFLlib's.

    Args:
      per_client: classes of a client.
      balance: equal shares of a class.
      min_rows: rows that a client has at least.
      stream: seed of the draws, whatever the run's.

    Raises:
        ValueError: a class has too few rows for its clients.
    """
    labels = checked_labels(labels, num_clients)
    rng = np.random.RandomState(stream)
    rows_of_class = np.bincount(labels)
    num_classes = len(rows_of_class)
    least = _least(min_rows, len(labels), num_clients)
    receivers = int(np.ceil(num_clients / num_classes * per_client))
    wanted = np.full(num_clients, per_client)
    owner = np.full(len(labels), UNUSED)
    for label, rows in enumerate(rows_of_class):
        chosen = np.flatnonzero(wanted)[:receivers]
        # Every client has its classes: PFLlib leaves the other rows out, too.
        if not len(chosen):
            break
        floor = least / num_classes
        sizes = _class_sizes(label, int(rows), len(chosen), floor, balance, rng)
        owner[labels == label] = np.repeat(chosen, sizes)
        wanted[chosen] -= 1
    return from_owner(owner, num_clients)


@checked
def pfllib_dirichlet(
    labels: Any,
    num_clients: Clients,
    seed: Seed,
    *,
    alpha: Alpha = 0.1,
    min_rows: Count = 40,
    stream: NumpySeed = 1,
) -> Partition:
    """Each class is divided by a draw of Dir(alpha 1_C), nothing to full clients.

    A client is full that has N / C rows. The whole federation is drawn anew until its
    smallest client has enough rows. The run's seed changes nothing, `stream` = 1 is
    PFLlib's.

    Args:
      alpha: concentration; small gives a class to few clients.
      min_rows: rows that a client has at least.
      stream: seed of the draws, whatever the run's.

    Raises:
        ValueError: no draw of a thousand had enough rows for every client.
    """
    labels = checked_labels(labels, num_clients)
    rng = np.random.RandomState(stream)
    least = _least(min_rows, len(labels), num_clients)
    for _ in range(TRIES):
        owner = _drawn(labels, num_clients, alpha, rng)
        size = np.bincount(owner, minlength=num_clients)
        if np.min(size) >= least:
            return from_owner(owner, num_clients)
    raise ValueError(
        f"alpha is {alpha} for {num_clients} clients: none of {TRIES} draws gave every "
        f"client {least} rows; choose a greater alpha, fewer clients or a smaller "
        "min_rows"
    )


def _least(min_rows: int, num_rows: int, num_clients: int) -> int:
    """The fewest rows that a client may have."""
    return int(min(min_rows, num_rows / num_clients / 2))


def _class_sizes(
    label: int,
    rows: int,
    clients: int,
    floor: float,
    balance: bool,
    rng: np.random.RandomState,
) -> list[int]:
    """How many of a class's `rows` each of so many clients gets."""
    share = rows / clients
    low = int(max(share / 10, floor))
    if clients > 1 and not balance and low >= int(share):
        raise ValueError(
            f"class {label} has {rows} rows for {clients} clients: nothing is left to "
            "draw between the least and an equal share; choose fewer clients or more "
            "rows"
        )
    if balance:
        sizes = [int(share)] * (clients - 1)
    else:
        # Called also for no numbers, which draws nothing.
        sizes = rng.randint(low, max(int(share), low + 1), clients - 1).tolist()
    return [*sizes, rows - sum(sizes)]


def _drawn(
    labels: np.ndarray, num_clients: int, alpha: float, rng: np.random.RandomState
) -> np.ndarray:
    """The owner of every row, i64[N]; full clients take nothing more."""
    owner = np.empty(len(labels), np.int64)
    size = np.zeros(num_clients, np.int64)
    full = len(labels) / num_clients
    for label in range(int(labels.max()) + 1):
        rows = np.flatnonzero(labels == label)
        rng.shuffle(rows)
        share = rng.dirichlet(np.repeat(alpha, num_clients))
        share = share * (size < full)
        # With a tiny alpha all of a class may be drawn for full clients.
        if not np.sum(share) > 0:
            share = (size < full).astype(float)
        cuts = (np.cumsum(share / np.sum(share)) * len(rows)).astype(int)[:-1]
        taken = np.diff(cuts, prepend=0, append=len(rows))
        owner[rows] = np.repeat(np.arange(num_clients), taken)
        size += taken
    return owner
