"""Shards: rows sorted by label, cut into equal pieces, a few pieces for each client."""

from typing import Any

import numpy as np

from pfljax.data.edge import Clients, Seed
from pfljax.data.partitions.base import Partition, checked_labels, from_owner
from pfljax.registry import AtLeastOne, checked


@checked
def shards(
    labels: Any, num_clients: Clients, seed: Seed, *, per_client: AtLeastOne = 2
) -> Partition:
    """Rows sorted by label, cut into C * per_client shards, dealt at random.

    McMahan et al. 2017, section 3. Shards differ by one row at most; every row is used.

    Args:
      per_client: shards of a client.
    """
    labels = checked_labels(labels, num_clients)
    shard = _shard_of_row(labels, num_clients, per_client)
    rng = np.random.default_rng(seed)
    owner_of_shard = rng.permutation(num_clients * per_client) % num_clients
    return from_owner(owner_of_shard[shard], num_clients)


@checked
def shards_in_order(
    labels: Any, num_clients: Clients, seed: Seed, *, per_client: AtLeastOne = 2
) -> Partition:
    """As `shards`, but shard i goes to client i mod C, as in SuPerFed's code.

    The seed changes nothing. With 2 shards client k has shards k and k + C.

    Args:
      per_client: shards of a client.
    """
    labels = checked_labels(labels, num_clients)
    shard = _shard_of_row(labels, num_clients, per_client)
    return from_owner(shard % num_clients, num_clients)


def _shard_of_row(labels: np.ndarray, num_clients: int, per_client: int) -> np.ndarray:
    """i64[N], the shard of every row: labels in order, ties in the order of the data.

    Raises:
        ValueError: `per_client` asks for more shards than rows.
    """
    num_rows = len(labels)
    num_shards = num_clients * per_client
    if num_shards > num_rows:
        raise ValueError(
            f"per_client is {per_client} for {num_clients} clients on {num_rows} "
            f"rows; choose 1 <= per_client <= {num_rows // num_clients}"
        )
    shard = np.empty(num_rows, np.int64)
    by_label = np.argsort(labels, kind="stable")
    # Shards that differ by one row at most, without a remainder at the end.
    shard[by_label] = np.arange(num_rows) * num_shards // num_rows
    return shard
