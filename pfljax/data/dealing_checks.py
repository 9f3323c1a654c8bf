"""Refuses calls of `federate`, and partitions, from which no federation comes."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pfljax import registry
from pfljax.data.arrays import OFFICIAL_TEST, OFFICIAL_TRAIN, Arrays
from pfljax.data.edge import MOST_COUNTS, brief
from pfljax.data.partitions.base import Partition, check_partition

ROWS = ("train", "all")
TEST_FROM = ("clients", "official", "official_classes", "official_own")


def check_call(
    arrays: Any,
    partition_name: Any,
    params: Any,
    rows: str,
    test_from: str,
    public: float,
) -> None:
    """ValueError for wrong types, and for rows that the data set does not have."""
    _check_kinds(arrays, partition_name, params)
    _check_choices(arrays, rows, test_from)
    _check_public(public, partition_name)


def check_dealt(
    arrays: Arrays, dealt: Partition, num_clients: int | None, test_from: str
) -> None:
    """ValueError for rows out of range, held twice or leaked, and empty clients."""
    dealt_clients = len(dealt.size)
    if num_clients not in (None, dealt_clients):
        raise ValueError(
            f"num_clients is {num_clients}, the partition has {dealt_clients}"
        )
    check_partition(dealt, len(arrays.y))
    counts = dealt_clients * arrays.num_classes
    if counts > MOST_COUNTS:
        raise ValueError(
            f"{dealt_clients} clients times {arrays.num_classes} classes are {counts} "
            "counts of labels; at most 2**28 are held: choose fewer of either"
        )
    empty = int(np.sum(dealt.size == 0))
    if empty:
        raise ValueError(
            f"{empty} of {dealt_clients} clients have no rows; choose fewer clients, "
            "or min_size >= 1 where the partition has it"
        )
    official = arrays.official[dealt.order]
    if test_from != "clients" and np.any(official == OFFICIAL_TEST):
        raise ValueError(
            f"test_from is {test_from!r}, but clients hold official test rows; "
            "choose rows='train' or test_from='clients'"
        )


def _check_kinds(arrays: Any, partition_name: Any, params: Any) -> None:
    if not isinstance(arrays, Arrays):
        raise ValueError(
            f"arrays is {brief(arrays)}; expected what load or from_arrays returns"
        )
    if not isinstance(partition_name, str | Partition):
        raise ValueError(
            f"partition_name is {brief(partition_name)}; expected a name, or a "
            "Partition: data.from_rows makes one of lists of rows"
        )
    if not isinstance(params, Mapping | None):
        raise ValueError(
            f"params is {brief(params)}; expected options by name: {{'alpha': 0.5}}"
        )


def _check_choices(arrays: Arrays, rows: str, test_from: str) -> None:
    registry.require_known("rows", rows, ROWS)
    registry.require_known("test_from", test_from, TEST_FROM)
    if rows == "train" and not np.any(arrays.official == OFFICIAL_TRAIN):
        raise ValueError(
            f"data set {arrays.name!r} has no official train rows; choose rows='all'"
        )
    if test_from != "clients" and not np.any(arrays.official == OFFICIAL_TEST):
        raise ValueError(
            f"test_from is {test_from!r}, but data set {arrays.name!r} has no official "
            "test rows; choose test_from='clients'"
        )


def _check_public(share: float, partition_name: str | Partition) -> None:
    """Refuses what is no share, and one of rows that a Partition has dealt."""
    registry.require("public", share, 0 <= share < 1, "a share, 0 <= share < 1")
    if share and isinstance(partition_name, Partition):
        raise ValueError(
            f"public is {share}, but a ready Partition says itself who has which rows; "
            "leave the server's rows out of it, and set Federation.public"
        )
