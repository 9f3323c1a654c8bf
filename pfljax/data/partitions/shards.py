"""Shards: equal pieces of the examples sorted by label, a few for each client."""

from typing import Any

import numpy as np

from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne
from pfljax.data.partitions.base import Partition, convert_labels, from_owner
from pfljax.data.values import Clients, Seed


@component
def shards(
    labels: Any, num_clients: Clients, seed: Seed, *, per_client: AtLeastOne = 2
) -> Partition:
    """Sorts examples by label and gives each client `per_client` random shards.

    McMahan et al. 2017, section 3. Shards differ by one example at most;
    every example is used.

    Args:
      per_client: shards of a client.
    """
    labels = convert_labels(labels, num_clients)
    shard = _shard_of_example(labels, num_clients, per_client)
    rng = np.random.default_rng(seed)
    owner_of_shard = rng.permutation(num_clients * per_client) % num_clients
    return from_owner(owner_of_shard[shard], num_clients)


@component
def shards_in_order(
    labels: Any, num_clients: Clients, seed: Seed, *, per_client: AtLeastOne = 2
) -> Partition:
    """Gives shard i to client i mod C, as in SuPerFed's code.

    The seed changes nothing. With 2 shards client k has shards k and k + C.

    Args:
      per_client: shards of a client.
    """
    labels = convert_labels(labels, num_clients)
    shard = _shard_of_example(labels, num_clients, per_client)
    return from_owner(shard % num_clients, num_clients)


def _shard_of_example(
    labels: np.ndarray, num_clients: int, per_client: int
) -> np.ndarray:
    """Returns the shard of every example, i64[N]; ties in the order of the data.

    Raises:
        ValueError: `per_client` asks for more shards than examples.
    """
    count = len(labels)
    num_shards = num_clients * per_client
    if num_shards > count:
        raise ValueError(
            f"per_client is {per_client} for {num_clients} clients on {count} "
            f"examples; choose 1 <= per_client <= {count // num_clients}"
        )
    shard = np.empty(count, np.int64)
    by_label = np.argsort(labels, kind="stable")
    # Shards that differ by one example at most, without a remainder at the end.
    shard[by_label] = np.arange(count) * num_shards // count
    return shard
