"""The natural clients of a data set."""

from typing import Any

import numpy as np

from pfljax.core.factories import component
from pfljax.data.partitions.base import Partition, from_owner
from pfljax.data.values import ClientsOrNone, Seed, as_integers, type_text


def by_client(client_ids: Any) -> Partition:
    """Makes the partition of the client ids i[N] of all examples, 0 .. C-1."""
    ids = as_integers("client ids", client_ids, ">= 0 [N]")
    if not len(ids) or ids.min() < 0:
        raise ValueError(
            f"client ids are {type_text(ids)}; expected integers >= 0 [N], N >= 1"
        )
    # Also before memory is asked for, which a stray id would take all of.
    if ids.max() >= len(ids):
        raise ValueError(
            f"the largest client id is {ids.max()}, but there are {len(ids)} examples: "
            "ids are 0 .. C-1; renumber them by np.unique(ids, return_inverse=True)[1]"
        )
    num_clients = int(ids.max()) + 1
    return from_owner(ids.astype(np.int64), num_clients)


@component
def natural(
    labels: Any, num_clients: ClientsOrNone, seed: Seed, *, client: Any = None
) -> Partition:
    """Uses the clients in the data set itself, such as writers or users.

    Labels and seed change nothing; `num_clients` may be None.

    Args:
      client: one client of the data set alone, by its number; None for all.
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
