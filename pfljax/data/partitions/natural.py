"""The clients that the data name themselves."""

from typing import Any

import numpy as np

from pfljax.data.partitions.base import Partition, from_owner


def by_client(client_ids: Any) -> Partition:
    """The partition of data that name the client of every row: ids i[N], 0 .. C-1."""
    ids = np.asarray(client_ids)
    integers = ids.ndim == 1 and len(ids) > 0 and ids.dtype.kind in "iu"
    if not integers or ids.min() < 0:
        raise ValueError(
            f"client ids are {ids.dtype}{list(ids.shape)}; expected integers >= 0 [N]"
        )
    num_clients = int(ids.max()) + 1
    return from_owner(ids.astype(np.int64), num_clients)


def natural(
    labels: Any, num_clients: int | None, seed: int, *, client: Any = None
) -> Partition:
    """The clients that the data set itself names: writers, users, its own tasks.

    Labels and seed change nothing; `num_clients` may be None.
    """
    if client is None:
        raise ValueError(
            "these data have no natural clients; choose another partition, see: "
            "pfljax list partitions"
        )
    partition = by_client(client)
    num_natural = len(partition.size)
    if num_clients not in (None, num_natural):
        raise ValueError(
            f"num_clients is {num_clients}, but the data have {num_natural} "
            "natural clients; leave num_clients out, and take() some of them later"
        )
    return partition
