"""Partitions of labelled examples: pure functions of labels, count and seed.

Each `f(labels i[N], num_clients, seed, **options)` returns a `Partition`, which is the
same on all machines. No example goes to two clients. An impossible partition is a
ValueError.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pfljax.core import components, factories
from pfljax.data.partitions.base import Partition
from pfljax.data.partitions.classes import classes, classes_lognormal
from pfljax.data.partitions.dirichlet import (
    dirichlet,
    dirichlet_over_classes_at_once,
    dirichlet_over_classes_by_client,
)
from pfljax.data.partitions.file import file
from pfljax.data.partitions.natural import natural
from pfljax.data.partitions.pfllib import pfllib_dirichlet, pfllib_pathological
from pfljax.data.partitions.quantity import iid, quantity_lognormal, quantity_power_law
from pfljax.data.partitions.shards import shards, shards_in_order

PARTITIONS: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "shards": shards,
    "shards_in_order": shards_in_order,
    "classes": classes,
    "classes_lognormal": classes_lognormal,
    "dirichlet": dirichlet,
    "dirichlet_over_classes_by_client": dirichlet_over_classes_by_client,
    "dirichlet_over_classes_at_once": dirichlet_over_classes_at_once,
    "pfllib_pathological": pfllib_pathological,
    "pfllib_dirichlet": pfllib_dirichlet,
    "quantity_power_law": quantity_power_law,
    "quantity_lognormal": quantity_lognormal,
    "natural": natural,
    "file": file,
}
KNOW_THEIR_CLIENTS = ("natural", "file")  # partitions that need no number of clients
BY_LABEL = {*PARTITIONS} - {
    *("iid", "quantity_power_law", "quantity_lognormal", "natural", "file")
}


def parse_name(
    name: str | Partition, params: Mapping[str, Any] | None
) -> tuple[str | Partition, dict[str, Any]]:
    """Splits "shards:per_client=3" into name and parameters; a Partition stays."""
    params = dict(params or {})
    if isinstance(name, Partition):
        return name, params
    choice = components.parse(name)
    if choice.args and params:
        raise ValueError(
            f"partition {name!r} has parameters, and params is {params}; give one of "
            "the two"
        )
    return choice.name, choice.options or params


def partition(
    name: str,
    labels: Any,
    num_clients: int | None,
    seed: int,
    params: Mapping[str, Any],
) -> Partition:
    """Makes the partition of this name.

    Raises:
        ValueError: the name or an option is unknown, or the partition is impossible.
    """
    choice = components.Component(name, params)
    arguments = (labels, num_clients, seed)
    return factories.build(
        "partition", PARTITIONS, choice, *arguments, returns=Partition
    )
