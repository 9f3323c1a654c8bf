"""Deals a data set to clients, and splits each client's rows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pfljax import registry
from pfljax.core.types import ClientData, Examples
from pfljax.data.arrays import OFFICIAL_TEST, OFFICIAL_TRAIN, Arrays, renumbered
from pfljax.data.federation import Federation
from pfljax.data.label_noise import Noise, label_noise, turn
from pfljax.data.manifest import describe
from pfljax.data.partitions import partition
from pfljax.data.partitions.base import Partition, check_partition, rank
from pfljax.data.split import (
    TEST,
    TRAIN,
    VALIDATION,
    check_fractions,
    shared_test,
    split_rows,
)

ROWS = ("train", "all")
TEST_FROM = ("clients", "official", "official_classes", "official_own")


def federate(
    arrays: Arrays,
    partition_name: str | Partition,
    *,
    num_clients: int | None,
    seed: int,
    params: Mapping[str, Any] | None = None,
    test: float = 0.2,
    validation: float = 0.1,
    stratified: bool = False,
    rows: str = "train",
    test_from: str = "clients",
    noise: str = "none",
    public: float = 0.0,
) -> Federation:
    """Deals `arrays` to clients and splits each client's rows.

    Args:
        arrays: what `load` or `from_arrays` returned.
        partition_name: a key of `PARTITIONS`, or a `Partition` of rows of `arrays`.
        num_clients: C; None where the partition knows it ("natural", a Partition).
        seed: of the partition and of the split.
        params: parameters of the partition.
        test: a client with n rows keeps int(test * n) for test ...
        validation: ... and int(validation * n) for validation: both are shares of n.
        stratified: take these rows evenly over the client's labels.
        rows: deal the official "train" rows only, or "all".
        test_from: "clients" tests on a client's own rows; "official" on the whole
            official test set, one copy for all; "official_classes" on its rows of the
            classes that the client holds, copied once for each set of classes;
            "official_own" on the test rows of the natural client that it is. Natural
            clients that have test rows only are left out; the manifest names them.
        noise: wrong labels for training and validation rows, such as "pair:rate=0.1";
            see `pfljax.data.label_noise.label_noise`. The rows are dealt by their true
            labels; the manifest counts the given ones.
        public: share of the rows to deal that the server holds in their place, at
            random: `Federation.public`. No client has them, and their labels are true.

    Raises:
        ValueError: for wrong fractions or names, or clients without rows.
    """
    _check_choices(arrays, rows, test_from)
    _check_public(public, partition_name)
    label_turns = label_noise(noise, arrays.num_classes)
    # Clients that are tested on other rows keep none of theirs for it.
    if test_from != "clients":
        test = 0.0
    check_fractions(test, validation)
    params = dict(params or {})
    to_deal, public_rows = _set_aside(rows_to_deal(arrays, rows), public, seed)
    dealt = _deal(arrays, partition_name, num_clients, seed, params, to_deal)
    _check_dealt(arrays, dealt, num_clients, test_from)
    # Seeds [seed, 1] and [seed, 2]: the split and the noise share no draw with the
    # partition, which has the seed alone.
    rng = np.random.default_rng([seed, 1])
    order, sizes = split_rows(dealt, arrays.y, test, validation, stratified, rng)
    offsets = dealt.offset + np.cumsum(sizes, axis=0) - sizes
    # After the partition, which goes by true labels; before official test rows join.
    labelled = _mislabelled(arrays, order, dealt, sizes, label_turns, seed)
    if test_from != "clients":
        order = _join_test(arrays, order, dealt, test_from, offsets, sizes)
    name = partition_name if isinstance(partition_name, str) else "given"
    settings: dict[str, Any] = {"partition": name, "params": params, "seed": seed}
    settings |= {"test": test, "validation": validation, "stratified": stratified}
    settings |= {"rows": rows, "test_from": test_from, "noise": noise}
    if name == "natural":
        settings |= _left_out(arrays, dealt.order)
    if len(public_rows):
        settings |= {"public": public, "public_rows": len(public_rows)}
    federation = _assemble(labelled, order, offsets, sizes, settings)
    return replace(federation, public=_held_by_server(arrays, public_rows))


def rows_to_deal(arrays: Arrays, rows: str) -> np.ndarray:
    """Row numbers of the official "train" rows, or of "all"; i64[R]."""
    if rows == "train":
        return np.flatnonzero(arrays.official == OFFICIAL_TRAIN)
    return np.arange(len(arrays.y))


def _set_aside(
    rows: np.ndarray, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """(rows for the clients, int(share * R) rows for the server), both ascending."""
    count = int(share * len(rows))
    # A stream apart from those of partition, split and noise.
    drawn = np.random.default_rng([seed, 3]).permutation(rows)
    return np.sort(drawn[count:]), np.sort(drawn[:count])


def _held_by_server(arrays: Arrays, rows: np.ndarray) -> ClientData | None:
    """The server's rows as a client's data; None for no rows."""
    if not len(rows):
        return None
    x: Any = arrays.x[rows]
    y: Any = arrays.y[rows]
    offset: Any = np.int32(0)
    size: Any = np.int32(len(rows))
    return ClientData(Examples(x, y), offset, size)


def _check_public(share: float, partition_name: str | Partition) -> None:
    registry.require("public", share, 0 <= share < 1, "a share, 0 <= share < 1")
    if share and isinstance(partition_name, Partition):
        raise ValueError(
            f"public is {share}, but a ready Partition says itself who has which rows; "
            "leave the server's rows out of it, and set Federation.public"
        )


def _join_test(
    arrays: Arrays,
    order: np.ndarray,
    dealt: Partition,
    test_from: str,
    offsets: np.ndarray,
    sizes: np.ndarray,
) -> np.ndarray:
    """`order` with official test rows behind it; sets their `offsets` and `sizes`."""
    test_rows, offset, size = shared_test(arrays, order, dealt, test_from)
    offsets[TEST] = offset + len(order)
    sizes[TEST] = size
    return np.concatenate([order, test_rows])


def _left_out(arrays: Arrays, dealt_rows: np.ndarray) -> dict[str, list[int]]:
    """What the manifest says of natural clients without a dealt row, if any."""
    if arrays.client is None:
        return {}
    everybody = np.unique(arrays.client)
    missing = np.setdiff1d(everybody, arrays.client[dealt_rows]).tolist()
    return {"left_out": missing} if missing else {}


def _mislabelled(
    arrays: Arrays,
    order: np.ndarray,
    dealt: Partition,
    sizes: np.ndarray,
    noise: Noise | None,
    seed: int,
) -> Arrays:
    """The data set with noisy labels at the clients' rows to learn from, or at all."""
    if noise is None:
        return arrays
    learnt = np.repeat(sizes[TRAIN] + sizes[VALIDATION], dealt.size)
    noisy = (rank(dealt.size) < learnt) | noise.tests_too
    rows = order[noisy]
    labels = arrays.y.copy()
    labels[rows] = turn(labels[rows], noise.matrix, [seed, 2])
    return arrays._replace(y=labels)


def _assemble(
    arrays: Arrays,
    order: np.ndarray,
    offsets: np.ndarray,
    sizes: np.ndarray,
    settings: dict[str, Any],
) -> Federation:
    """The federation of pool rows `order`; offsets and sizes are i64[3, C]."""
    if len(order) > np.iinfo(np.int32).max:
        raise ValueError(f"the pool has {len(order)} rows; at most 2**31 - 1 are held")
    # NumPy arrays: the pool stays on the host until a run is placed on its devices.
    x: Any = arrays.x[order]
    y: Any = arrays.y[order]
    pool = Examples(x, y)
    train, validation, test = (
        ClientData(pool, offset.astype(np.int32), size.astype(np.int32))
        for offset, size in zip(offsets, sizes, strict=True)
    )
    return Federation(
        train=train,
        validation=validation,
        test=test,
        num_classes=arrays.num_classes,
        shift=arrays.shift,
        scale=arrays.scale,
        name=arrays.name,
        class_names=arrays.class_names,
        manifest=describe(arrays, order, offsets, sizes, settings),
        row=order.astype(np.int32),
        official=arrays.official[order],
    )


def _deal(
    arrays: Arrays,
    how: str | Partition,
    num_clients: int | None,
    seed: int,
    params: dict[str, Any],
    rows: np.ndarray,
) -> Partition:
    """The partition, in row numbers of `arrays`."""
    if isinstance(how, Partition):
        if params:
            raise ValueError(f"params {sorted(params)} given with a ready Partition")
        return how
    if num_clients is None and how != "natural":
        raise ValueError(f"partition {how!r} needs num_clients, got None")
    if how == "natural" and arrays.client is not None:
        # Counted anew, for some may have no row among these.
        params = {**params, "client": renumbered(arrays.client[rows])}
    dealt = partition(how, arrays.y[rows], num_clients, seed, params)
    return dealt._replace(order=rows[dealt.order])


def _check_choices(arrays: Arrays, rows: str, test_from: str) -> None:
    if rows not in ROWS:
        raise ValueError(f"unknown rows {rows!r}; known: {', '.join(ROWS)}")
    if test_from not in TEST_FROM:
        raise ValueError(
            f"unknown test_from {test_from!r}; known: {', '.join(TEST_FROM)}"
        )
    if test_from != "clients" and not np.any(arrays.official == OFFICIAL_TEST):
        raise ValueError(
            f"test_from is {test_from!r}, but data set {arrays.name!r} has no official "
            "test rows; choose test_from='clients'"
        )


def _check_dealt(
    arrays: Arrays, dealt: Partition, num_clients: int | None, test_from: str
) -> None:
    """ValueError for rows out of range, held twice or leaked, and empty clients."""
    dealt_clients = len(dealt.size)
    if num_clients not in (None, dealt_clients):
        raise ValueError(
            f"num_clients is {num_clients}, the partition has {dealt_clients}"
        )
    check_partition(dealt, len(arrays.y))
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
