"""Ways of dealing labelled rows to clients: pure functions of labels, count and seed.

Every `f(labels i[N], num_clients, seed, **params)` returns a `Partition`. No row goes
to two clients. They raise ValueError for what cannot be dealt. Client k's rows are
independent of the machine; the work is O(N + C K) with no Python loop over clients.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pfljax import registry
from pfljax.data.partitions.base import (
    UNUSED,
    Partition,
    apportion,
    check_minimum,
    from_owner,
    start,
)
from pfljax.data.partitions.dirichlet import (
    dirichlet_over_classes,
    dirichlet_over_clients,
)


def iid(labels: Any, num_clients: int, seed: int) -> Partition:
    """Every row once, at random; sizes differ by one row at most."""
    labels, rng = start(labels, num_clients, seed)
    owner = np.empty(len(labels), np.int64)
    owner[rng.permutation(len(labels))] = np.arange(len(labels)) % num_clients
    return from_owner(owner, num_clients)


def shards(
    labels: Any, num_clients: int, seed: int, *, per_client: int = 2
) -> Partition:
    """Rows sorted by label, cut into C * per_client shards, dealt at random.

    McMahan et al. 2017, section 3. Shards differ by one row at most; every row is used.
    """
    labels, rng = start(labels, num_clients, seed)
    shard = _shard_of(labels, num_clients, per_client)
    dealt = rng.permutation(num_clients * per_client) % num_clients
    return from_owner(dealt[shard], num_clients)


def shards_in_order(
    labels: Any, num_clients: int, seed: int, *, per_client: int = 2
) -> Partition:
    """As `shards`, but shard i goes to client i mod C, as in SuPerFed's code.

    The seed changes nothing. With 2 shards client k has shards k and k + C.
    """
    labels, _ = start(labels, num_clients, seed)
    shard = _shard_of(labels, num_clients, per_client)
    return from_owner(shard % num_clients, num_clients)


def classes(
    labels: Any, num_clients: int, seed: int, *, per_client: int = 2
) -> Partition:
    """Client k has class k mod K and per_client - 1 others (NIID-Bench, #k).

    A class is divided equally among its owners; a class without owner stays unused.
    """
    labels, rng = start(labels, num_clients, seed)
    owned = _owned(num_clients, int(labels.max()) + 1, per_client, rng)
    owner = np.full(len(labels), UNUSED)
    for label in range(owned.shape[1]):
        owners = np.flatnonzero(owned[:, label])
        rows = rng.permutation(np.flatnonzero(labels == label))
        if len(owners):
            share = len(rows) // len(owners) + (
                np.arange(len(owners)) < len(rows) % len(owners)
            )
            owner[rows] = np.repeat(owners, share)
    return from_owner(owner, num_clients)


def quantity_power_law(
    labels: Any,
    num_clients: int,
    seed: int,
    *,
    exponent: float = 1.0,
    min_size: int = 1,
) -> Partition:
    """Rows at random, size of client k proportional to (k + 1) ** -exponent.

    exponent = 0 is `iid`. Every row is used; nobody has less than `min_size`.
    """
    labels, rng = start(labels, num_clients, seed)
    if not (np.isfinite(exponent) and exponent >= 0):
        raise ValueError(f"exponent is {exponent}; choose a number >= 0")
    share = np.arange(1, num_clients + 1, dtype=float) ** -exponent
    return _by_share(len(labels), share, min_size, rng)


def quantity_lognormal(
    labels: Any,
    num_clients: int,
    seed: int,
    *,
    sigma: float = 1.0,
    min_size: int = 1,
) -> Partition:
    """Rows at random, sizes proportional to draws of LogNormal(0, sigma).

    sigma = 0 is `iid`. Every row is used; nobody has less than `min_size`.
    """
    labels, rng = start(labels, num_clients, seed)
    if not (np.isfinite(sigma) and sigma >= 0):
        raise ValueError(f"sigma is {sigma}; choose a number >= 0")
    share = rng.lognormal(0.0, sigma, num_clients)
    return _by_share(len(labels), share, min_size, rng)


def by_client(client_ids: Any) -> Partition:
    """The partition of data that name the client of every row: ids i[N], 0 .. C-1."""
    ids = np.asarray(client_ids)
    if ids.ndim != 1 or len(ids) == 0 or ids.dtype.kind not in "iu" or ids.min() < 0:
        raise ValueError(
            f"client ids are {ids.dtype}{list(ids.shape)}; expected integers >= 0 [N]"
        )
    return from_owner(ids.astype(np.int64), int(ids.max()) + 1)


def natural(
    labels: Any, num_clients: int | None, seed: int, *, client: Any = None
) -> Partition:
    """The clients that the data set itself names: writers, users, its own tasks.

    Labels and seed change nothing; `num_clients` may be None.
    """
    if client is None:
        raise ValueError(
            "these data have no natural clients; choose another partition, "
            f"one of {', '.join(sorted(set(PARTITIONS) - {'natural'}))}"
        )
    found = by_client(client)
    if num_clients not in (None, len(found.size)):
        raise ValueError(
            f"num_clients is {num_clients}, but the data have {len(found.size)} "
            "natural clients; leave num_clients out, and take() some of them later"
        )
    return found


PARTITIONS: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "shards": shards,
    "shards_in_order": shards_in_order,
    "classes": classes,
    "dirichlet_over_clients": dirichlet_over_clients,
    "dirichlet_over_classes": dirichlet_over_classes,
    "quantity_power_law": quantity_power_law,
    "quantity_lognormal": quantity_lognormal,
    "natural": natural,
}


def partition(
    name: str,
    labels: Any,
    num_clients: int | None,
    seed: int,
    params: Mapping[str, Any],
) -> Partition:
    """The partition called `name`; unknown names and parameters list the known ones."""
    function = registry.find("partition", PARTITIONS, name)
    registry.check("partition", registry.choose(name, **params), function)
    return function(labels, num_clients, seed, **params)


def _shard_of(labels: np.ndarray, num_clients: int, per_client: int) -> np.ndarray:
    """The shard i64[N] of every row; labels in order, ties in the order of the data."""
    shards_in_all = num_clients * per_client
    if per_client < 1 or shards_in_all > len(labels):
        raise ValueError(
            f"per_client is {per_client} for {num_clients} clients on {len(labels)} "
            f"rows; choose 1 <= per_client <= {len(labels) // num_clients}"
        )
    shard = np.empty(len(labels), np.int64)
    place = np.arange(len(labels)) * shards_in_all // len(labels)
    shard[np.argsort(labels, kind="stable")] = place
    return shard


def _owned(num_clients: int, num_classes: int, per_client: int, rng: Any) -> np.ndarray:
    """bool[C, K]: class k mod K and per_client - 1 random others for client k."""
    if not 1 <= per_client <= num_classes:
        raise ValueError(
            f"per_client is {per_client}, but there are {num_classes} classes; "
            f"choose 1 <= per_client <= {num_classes}"
        )
    clients = np.arange(num_clients)
    lot = rng.random((num_clients, num_classes))
    lot[clients, clients % num_classes] = -1.0
    chosen = np.argsort(lot, axis=1)[:, :per_client]
    owned = np.zeros(lot.shape, bool)
    owned[clients[:, None], chosen] = True
    return owned


def _by_share(rows: int, share: np.ndarray, min_size: int, rng: Any) -> Partition:
    check_minimum(min_size, len(share), rows)
    size = min_size + apportion(rows - min_size * len(share), share)
    owner = np.empty(rows, np.int64)
    owner[rng.permutation(rows)] = np.repeat(np.arange(len(share)), size)
    return from_owner(owner, len(share))
