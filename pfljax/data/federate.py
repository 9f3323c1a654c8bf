"""Deals a data set to clients, and splits each client's rows."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from pfljax import registry
from pfljax.core import malicious
from pfljax.core.types import ClientData, Examples
from pfljax.data import dealing_checks as checks
from pfljax.data import public_rows
from pfljax.data.arrays import OFFICIAL_TRAIN, Arrays, renumbered
from pfljax.data.edge import ClientsOrNone, Seed
from pfljax.data.federation import Federation
from pfljax.data.label_noise import Noise, label_noise, turn
from pfljax.data.manifest import describe
from pfljax.data.partitions import named, partition
from pfljax.data.partitions.base import Partition, rank
from pfljax.data.split import (
    TEST,
    TRAIN,
    VALIDATION,
    Split,
    check_fractions,
    shared_test,
    split_rows,
)


@registry.checked
def federate(
    arrays: Arrays,
    partition_name: str | Partition,
    *,
    num_clients: ClientsOrNone,
    seed: Seed,
    params: Any = None,
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
        partition_name: a key of `PARTITIONS`, alone or with its parameters, such as
            "shards:per_client=3"; or a `Partition` of rows of `arrays`.
        num_clients: C; None where the partition knows it ("natural", a Partition).
        seed: of the partition and of the split.
        params: parameters of the partition, by name; None for its defaults.
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
            labels; the manifest counts the given ones. "poison:attackers=0.2" is of the
            training rows of malicious clients alone.
        public: share of the rows to deal that the server holds in their place, at
            random: `Federation.public`. No client has them, and their labels are true.

    Raises:
        ValueError: for wrong types, fractions or names, or clients without rows.
    """
    checks.check_call(arrays, partition_name, params, rows, test_from, public)
    label_turns = label_noise(noise, arrays.num_classes)
    test = _kept_for_test(test, validation, test_from)
    how, params = _way_of_dealing(partition_name, params)
    to_deal, withheld = public_rows.set_aside(_rows_to_deal(arrays, rows), public, seed)
    dealt = _deal(arrays, how, num_clients, seed, params, to_deal)
    checks.check_dealt(arrays, dealt, num_clients, test_from)
    # Seeds [seed, 1] and [seed, 2]: the split and the noise share no draw with the
    # partition, which has the seed alone.
    split = split_rows(dealt, arrays.y, test, validation, stratified, [seed, 1])
    # After the partition, which goes by true labels; before official test rows join.
    labelled = _mislabelled(arrays, split, dealt, label_turns, seed)
    split = _with_official_test(arrays, split, dealt, test_from)
    settings: dict[str, Any] = {
        "partition": how if isinstance(how, str) else "given",
        "params": params,
        "seed": seed,
        "test": test,
        "validation": validation,
        "stratified": stratified,
        "rows": rows,
        "test_from": test_from,
        "noise": noise,
        **_left_out(arrays, how, dealt.order),
        **public_rows.settings(public, withheld),
    }
    server_data = public_rows.held_by_server(arrays, withheld)
    return _assemble(labelled, split, settings, server_data)


def _kept_for_test(test: float, validation: float, test_from: str) -> float:
    """The share of its rows that a client keeps for test, checked."""
    # Clients that are tested on other rows keep none of theirs for it.
    share = test if test_from == "clients" else 0.0
    check_fractions(share, validation)
    return share


def _rows_to_deal(arrays: Arrays, rows: str) -> np.ndarray:
    """Row numbers of the official "train" rows, or of "all"; i64[R]."""
    if rows == "train":
        return np.flatnonzero(arrays.official == OFFICIAL_TRAIN)
    return np.arange(len(arrays.y))


def _with_official_test(
    arrays: Arrays, split: Split, dealt: Partition, test_from: str
) -> Split:
    """The split with official test rows behind the others, for the clients to share.

    The split as it is where clients are tested on rows of their own.
    """
    if test_from == "clients":
        return split
    test_rows, offset, size = shared_test(arrays, split.order, dealt, test_from)
    behind = len(split.order) + offset
    return Split(
        order=np.concatenate([split.order, test_rows]),
        offsets=np.stack([*split.offsets[:TEST], behind]),
        sizes=np.stack([*split.sizes[:TEST], size]),
    )


def _left_out(
    arrays: Arrays, how: str | Partition, dealt_rows: np.ndarray
) -> dict[str, list[int]]:
    """What the manifest says of natural clients without a dealt row, if any."""
    if how != "natural" or arrays.client is None:
        return {}
    everybody = np.unique(arrays.client)
    missing = np.setdiff1d(everybody, arrays.client[dealt_rows]).tolist()
    return {"left_out": missing} if missing else {}


def _mislabelled(
    arrays: Arrays,
    split: Split,
    dealt: Partition,
    noise: Noise | None,
    seed: int,
) -> Arrays:
    """The data set with noisy labels at the clients' rows to learn from, or at all."""
    if noise is None:
        return arrays
    learnt = split.sizes[TRAIN] + split.sizes[VALIDATION]
    if noise.attackers is not None:
        learnt = split.sizes[TRAIN] * _malicious(len(learnt), noise.attackers, seed)
    noisy = (rank(dealt.size) < np.repeat(learnt, dealt.size)) | noise.tests_too
    rows = split.order[noisy]
    labels = arrays.y.copy()
    labels[rows] = turn(labels[rows], noise.matrix, [seed, 2])
    return arrays._replace(y=labels)


def _malicious(num_clients: int, share: float, seed: int) -> np.ndarray:
    """Whether each client is malicious, bool[C], as channels have it."""
    return np.asarray(malicious.drawn(jax.random.key(seed), num_clients, share))


def _assemble(
    arrays: Arrays,
    split: Split,
    settings: dict[str, Any],
    server_data: ClientData | None,
) -> Federation:
    """The federation whose pool and clients are as the split says."""
    order, offsets, sizes = split
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
        public=server_data,
    )


def _way_of_dealing(
    partition_name: str | Partition, params: Mapping[str, Any] | None
) -> tuple[str | Partition, dict[str, Any]]:
    """(name of the partition, or a ready one; its parameters)."""
    params = dict(params or {})
    if isinstance(partition_name, Partition):
        return partition_name, params
    return named(partition_name, params)


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
