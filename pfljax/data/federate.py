"""Deals a data set to clients and splits the examples of each client."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pfljax.core import factories, requirements
from pfljax.core.components import is_own
from pfljax.core.types import ClientData, Examples
from pfljax.data.arrays import (
    OFFICIAL_NAMES,
    OFFICIAL_TEST,
    OFFICIAL_TRAIN,
    OFFICIAL_VALIDATION,
    Arrays,
    renumber,
)
from pfljax.data.federation import Federation
from pfljax.data.label_noise import flip_labels
from pfljax.data.manifest import describe, find_left_out, find_names
from pfljax.data.partitions import BY_LABEL, KNOW_THEIR_CLIENTS, parse_name, partition
from pfljax.data.partitions.base import Partition, check_partition
from pfljax.data.split import (
    OFFICIAL,
    TEST,
    VALIDATION,
    Split,
    append_official,
    choose_source,
    split_examples,
)
from pfljax.data.values import MOST_COUNTS, ClientsOrNone, Fraction, Seed

EXAMPLES = ("train", "all")
TEST_FROM = ("clients", "official", "official_classes")


@factories.validate
def federate(
    arrays: Arrays,
    partition_name: str | Partition,
    *,
    num_clients: ClientsOrNone,
    seed: Seed,
    params: Any = None,
    test: Fraction = 0.2,
    validation: Fraction = 0.1,
    stratified: bool = False,
    examples: str = "train",
    test_from: str = "clients",
    noise: str = "none",
    public: Fraction = 0.0,
) -> Federation:
    """Deals `arrays` to clients and splits the examples of each client.

    Args:
        arrays: what `load` or `from_arrays` returned.
        partition_name: a key of `PARTITIONS`, alone or with its parameters, such as
            "shards:per_client=3"; or a `Partition` of the examples of `arrays`.
        num_clients: C; None if the partition knows it ("natural", "file", a
            Partition).
        seed: seed of the partition and of the split.
        params: parameters of the partition, by name; None for its defaults.
        test: a client with n examples keeps int(test * n) for testing, unless
            `test_from` gives it official test examples.
        validation: a client with n examples keeps int(validation * n) for validation,
            unless the data have official validation examples. A natural client has its
            own of them, with true labels; other clients have them as `test_from` says,
            except "clients".
        stratified: take both evenly over the client's labels.
        examples: deal the official "train" examples only, or "all".
        test_from: "clients" tests on a client's own examples: a natural client on its
            official test examples, if the data have any, and others on the share
            `test`; "official" on the whole official test set, one copy for all;
            "official_classes" on its examples of the classes that the client holds,
            copied once for each set of classes. Natural clients that have only test
            examples are left out; the manifest lists them.
        noise: wrong labels for training and validation examples, such as
            "pair:rate=0.1"; see `pfljax.data.label_noise.label_noise`. Examples are
            dealt by their true labels; the manifest counts the noisy ones.
            "poison:attackers=0.2" flips only training labels of malicious clients.
        public: share of the examples that the server holds instead of the clients,
            drawn at random, with true labels: `Federation.public`.

    Raises:
        ValueError: types, fractions or names are wrong, or a client has no examples.
    """
    _check_choices(arrays, partition_name, params, examples, test_from)
    partition_name, params = parse_name(partition_name, params)
    index = _choose_examples(arrays, examples)
    index, held_by_server = _set_aside(index, partition_name, public, seed)
    dealt = _deal(arrays, partition_name, num_clients, seed, params, index)
    _check_dealt(arrays, dealt, num_clients)
    sources = {VALIDATION: "clients", TEST: test_from}
    if examples == "train":
        sources = {
            part: choose_source(arrays, dealt, part, test_from) for part in OFFICIAL
        }
    _check_leaks(arrays, dealt, sources)
    # Clients that have official examples keep none of theirs for it.
    validation = validation if sources[VALIDATION] == "clients" else 0.0
    test = test if sources[TEST] == "clients" else 0.0
    # Seeds [seed, 1] and [seed, 2]: the split and the noise share no draw with the
    # partition, which has the seed alone.
    split = split_examples(
        dealt, arrays.labels, test, validation, stratified, [seed, 1]
    )
    # After the partition, which goes by true labels; before official examples join.
    noisy = flip_labels(arrays, split, dealt, noise, seed)
    for part, source in sources.items():
        split = append_official(split, arrays, dealt, part, source)
    settings: dict[str, Any] = {
        "partition": partition_name if isinstance(partition_name, str) else "given",
        "params": params,
        "seed": seed,
        "test": test,
        "validation": validation,
        "validation_from": sources[VALIDATION],
        "stratified": stratified,
        "examples": examples,
        "test_from": sources[TEST],
        "noise": noise,
        **find_left_out(arrays, partition_name, dealt.order),
        **find_names(arrays, dealt),
    }
    settings["unused"] = _count_unused(arrays, split, held_by_server)
    if len(held_by_server):
        settings |= {"public": public, "public_examples": len(held_by_server)}
    return _assemble(noisy, split, settings, _server_data(arrays, held_by_server))


def _check_choices(
    arrays: Any, partition_name: Any, params: Any, examples: str, test_from: str
) -> None:
    for name, value, kind, expected in (
        ("arrays", arrays, Arrays, "what load or from_arrays returns"),
        (
            "partition_name",
            partition_name,
            (str, Partition),
            "a name, or a Partition: data.from_indices makes one of lists of indices",
        ),
        ("params", params or {}, Mapping, "options by name: {'alpha': 0.5}"),
    ):
        requirements.require_a(name, value, kind, expected)
    requirements.require_known("examples", examples, EXAMPLES)
    requirements.require_known("test_from", test_from, TEST_FROM)
    if test_from != "clients" and not np.any(arrays.official == OFFICIAL_TEST):
        raise ValueError(
            f"test_from is {test_from!r}, but data set {arrays.name!r} has no official "
            "test examples; choose test_from='clients'"
        )


def _choose_examples(arrays: Arrays, examples: str) -> np.ndarray:
    """Returns the indices of the official "train" examples, or of "all"."""
    if examples == "all":
        return np.arange(len(arrays.y))
    index = np.flatnonzero(arrays.official == OFFICIAL_TRAIN)
    if not len(index):
        raise ValueError(
            f"data set {arrays.name!r} has no official train examples; choose "
            "examples='all'"
        )
    return index


def _set_aside(
    index: np.ndarray, how: str | Partition, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws int(share * R) examples for the server; returns the others and these."""
    if share and isinstance(how, Partition):
        raise ValueError(
            f"public is {share}, but a Partition assigns all examples; leave those of "
            "the server out of it, and set Federation.public"
        )
    count = int(share * len(index))
    if share and not count:
        raise ValueError(
            f"public is {share}, which is none of {len(index)} examples; give at least "
            f"{1 / len(index):.2g}, or 0 for a server without examples"
        )
    # A stream apart from those of partition, split and noise.
    drawn = np.random.default_rng([seed, 3]).permutation(index)
    return np.sort(drawn[count:]), np.sort(drawn[:count])


def _deal(
    arrays: Arrays,
    how: str | Partition,
    num_clients: int | None,
    seed: int,
    params: dict[str, Any],
    index: np.ndarray,
) -> Partition:
    """Returns the partition, in indices of `arrays`."""
    if isinstance(how, Partition):
        if params:
            raise ValueError(f"params {sorted(params)} given with a ready Partition")
        return how
    if num_clients is None and not (how in KNOW_THEIR_CLIENTS or is_own(how)):
        raise ValueError(f"partition {how!r} needs num_clients, got None")
    if arrays.kind == "tokens" and how in BY_LABEL:
        raise ValueError(
            f"partition {how!r} divides labels, and sequences of tokens have none; "
            "choose natural, iid or a partition by quantity"
        )
    if how == "natural" and arrays.client is not None:
        # Clients are renumbered, because some may have no example among these.
        params = {**params, "client": renumber(arrays.client[index])}
    dealt = partition(how, arrays.labels[index], num_clients, seed, params)
    return dealt._replace(order=index[dealt.order])


def _check_dealt(arrays: Arrays, dealt: Partition, num_clients: int | None) -> None:
    """Raises a ValueError if the partition is no partition."""
    check_partition(dealt, len(arrays.y))
    count = len(dealt.size)
    if num_clients not in (None, count):
        raise ValueError(f"num_clients is {num_clients}, the partition has {count}")
    if count * arrays.num_labels > MOST_COUNTS:
        raise ValueError(
            f"{count} clients times {arrays.num_labels} labels are more than 2**28 "
            "counts; choose fewer of either"
        )


def _check_leaks(arrays: Arrays, dealt: Partition, sources: dict[int, str]) -> None:
    """Raises a ValueError if clients would train on what they are evaluated on."""
    official = arrays.official[dealt.order]
    for part, source in sources.items():
        if source != "clients" and np.any(official == OFFICIAL[part]):
            raise ValueError(
                f"clients train on official {OFFICIAL_NAMES[OFFICIAL[part]]} examples, "
                "on which they would be evaluated; leave these out of the Partition, "
                "or choose examples='all' and test_from='clients'"
            )


def _count_unused(
    arrays: Arrays, split: Split, held_by_server: np.ndarray
) -> dict[str, int]:
    """The numbers of official examples that nobody has, by part."""
    count, starts = len(split.order), split.offsets.ravel()
    ends = starts + split.sizes.ravel()
    # Clients may share spans: an example is covered by those that began before it.
    begun = np.bincount(starts, minlength=count + 1)
    ended = np.bincount(ends, minlength=count + 1)
    is_covered = np.cumsum(begun - ended)[:-1] > 0
    is_used = np.zeros(len(arrays.y), bool)
    is_used[split.order[is_covered]] = True
    is_used[held_by_server] = True
    left = {
        name: int(np.sum((arrays.official == number) & ~is_used))
        for name, number in (
            ("validation", OFFICIAL_VALIDATION),
            ("test", OFFICIAL_TEST),
        )
    }
    return {name: number for name, number in left.items() if number}


def _server_data(arrays: Arrays, index: np.ndarray) -> ClientData | None:
    if not len(index):
        return None
    x: Any = arrays.x[index]
    y: Any = arrays.y[index]
    offset: Any = np.int32(0)
    size: Any = np.int32(len(index))
    return ClientData(Examples(x, y), offset, size)


def _assemble(
    arrays: Arrays,
    split: Split,
    settings: dict[str, Any],
    server_data: ClientData | None,
) -> Federation:
    """Makes the federation whose pool and clients are as the split says."""
    order, offsets, sizes = split
    if len(order) > np.iinfo(np.int32).max:
        raise ValueError(f"the pool has {len(order)} examples; at most 2**31 - 1 fit")
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
        index=order.astype(np.int32),
        official=arrays.official[order],
        public=server_data,
        kind=arrays.kind,
    )
