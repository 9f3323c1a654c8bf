"""Splits each client's examples, and appends official ones, which clients may share."""

from typing import Any, NamedTuple

import numpy as np

from pfljax.data.arrays import OFFICIAL_TEST, OFFICIAL_VALIDATION, Arrays
from pfljax.data.partitions.base import Partition, offsets, rank

MAX_BYTES = 2**31  # of examples that "official_classes" may copy
TRAIN, VALIDATION, TEST = range(3)  # parts of a client, in the pool's order
OFFICIAL = {VALIDATION: OFFICIAL_VALIDATION, TEST: OFFICIAL_TEST}


class Split(NamedTuple):
    """The examples of the pool, and the spans of each client's parts in it."""

    order: np.ndarray  # i64[R], indices, by client and then by part
    offsets: np.ndarray  # i64[3, C], into `order`: train, validation, test
    sizes: np.ndarray  # i64[3, C]


def split_examples(
    dealt: Partition,
    labels: np.ndarray,
    test: float,
    validation: float,
    stratified: bool,
    seed: list[int],
) -> Split:
    """Shuffles each client's examples, into train | validation | test.

    Raises:
        ValueError: the fractions leave no examples to train on.
    """
    if test + validation >= 1:
        raise ValueError(
            f"test + validation is {test} + {validation}; leave examples to train on: "
            "choose fractions that sum to less than 1"
        )
    rng = np.random.default_rng(seed)
    size = dealt.size
    test_size = (test * size).astype(np.int64)
    validation_size = (validation * size).astype(np.int64)
    train_size = size - test_size - validation_size
    sizes = np.stack([train_size, validation_size, test_size])
    client = np.repeat(np.arange(len(size)), size)
    # Sorting by random numbers within a client shuffles all clients in one call.
    lot = rng.random(len(dealt.order))
    if stratified:
        part = _even_parts(labels[dealt.order], client, lot, sizes, rng)
        by_client = np.lexsort((lot, part, client))
    else:
        by_client = np.lexsort((lot, client))
    return Split(
        order=dealt.order[by_client],
        offsets=dealt.offset + np.cumsum(sizes, axis=0) - sizes,
        sizes=sizes,
    )


def _even_parts(
    labels: np.ndarray,
    client: np.ndarray,
    lot: np.ndarray,
    sizes: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Returns the part of each example, i64[R], evenly over a client's labels.

    This is systematic sampling: in order of label, each (n / n_part)-th example is
    taken from a random start. So a label's count is within one example of its share,
    and each part has exactly its size.
    """
    part = np.full(len(labels), TRAIN)
    left = np.lexsort((lot, labels, client))
    size_left = np.sum(sizes, axis=0)
    # The examples left after both are for training.
    for which in (TEST, VALIDATION):
        start = (rng.random(len(size_left)) * size_left).astype(np.int64)
        owner = client[left]
        wanted = sizes[which][owner]
        # Example i is taken where i * wanted + start crosses a multiple of size_left.
        step = rank(size_left) * wanted + start[owner]
        crosses = (step + wanted) // size_left[owner] > step // size_left[owner]
        part[left[crosses]] = which
        left = left[~crosses]
        size_left = size_left - sizes[which]
    return part


def choose_source(arrays: Arrays, dealt: Partition, part: int, test_from: str) -> str:
    """Returns where the examples of a part come from: `test_from`, or "official_own".

    A natural client has its own official examples, unless it is tested on those of
    all clients.

    Raises:
        ValueError: no natural client has both training and test examples.
    """
    official = arrays.official == OFFICIAL[part]
    if not np.any(official):
        return "clients"
    owner = natural_owner(arrays, dealt)
    is_tested_on_others = part == TEST and test_from != "clients"
    if owner is None or arrays.client is None or is_tested_on_others:
        return test_from
    others = np.unique(arrays.client[official])
    if np.any(np.isin(owner, others)):
        return "official_own"
    if part == TEST:
        raise ValueError(
            "natural clients have either training or test examples, as in LEAF's split "
            "by user; choose examples='all' and unseen='official=test', for clients "
            "that do not train"
        )
    return "clients"  # those that only validate do not train


def append_official(
    split: Split, arrays: Arrays, dealt: Partition, part: int, source: str
) -> Split:
    """Appends official examples to the pool, as the validation or test `part`.

    If the `source` is "clients", they keep what they have.
    """
    if source == "clients":
        return split
    index = np.flatnonzero(arrays.official == OFFICIAL[part])
    if source == "official":
        size = np.full(len(dealt.size), len(index))
        offset = np.zeros_like(size)
    elif source == "official_own":
        index, offset, size = _natural_examples(arrays, dealt, index)
    else:
        index, offset, size = _class_examples(arrays, dealt, index)
    offsets, sizes = split.offsets.copy(), split.sizes.copy()
    offsets[part] = len(split.order) + offset
    sizes[part] = size
    return Split(np.concatenate([split.order, index]), offsets, sizes)


def _class_examples(
    arrays: Arrays, dealt: Partition, index: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Copies the examples `index` once for each set of classes that a client holds.

    Returns the indices to append, and the offset and size i64[C] of each client.
    """
    num_clients = len(dealt.size)
    client = np.repeat(np.arange(num_clients), dealt.size)
    holds = np.zeros((num_clients, arrays.num_labels), bool)
    holds[client, arrays.labels[dealt.order]] = True
    class_sets, set_of_client = np.unique(holds, axis=0, return_inverse=True)
    set_of_client = set_of_client.reshape(-1)
    labels = arrays.labels[index]
    size = class_sets @ np.bincount(labels, minlength=arrays.num_labels)
    if np.sum(size) * arrays.x[0].nbytes > MAX_BYTES:
        raise ValueError(
            f"test_from='official_classes' would copy {np.sum(size)} examples "
            f"for {len(class_sets)} sets of classes; choose test_from='official'"
        )
    # Clients with one set of classes read the same copy.
    copies = [index[class_set[labels]] for class_set in class_sets]
    offset = offsets(size)
    return np.concatenate(copies), offset[set_of_client], size[set_of_client]


def _natural_examples(
    arrays: Arrays, dealt: Partition, index: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns those of the examples `index` of each client, which is a natural client.

    The indices to append, and the offset and size i64[C] of each client.
    """
    clients: Any = arrays.client
    natural: Any = natural_owner(arrays, dealt)
    index = index[np.argsort(clients[index], kind="stable")]
    owner = clients[index]
    # The examples are sorted by owner, so those of a natural client are a span.
    start = np.searchsorted(owner, natural, "left")
    end = np.searchsorted(owner, natural, "right")
    return index, start, end - start


def natural_owner(arrays: Arrays, dealt: Partition) -> np.ndarray | None:
    """Returns the natural client that each client is, i32[C]; None if they are others.

    Data without natural clients have None as well.
    """
    if arrays.client is None:
        return None
    owner = arrays.client[dealt.order]
    natural = owner[dealt.offset]
    is_one = np.array_equal(owner, np.repeat(natural, dealt.size))
    return natural if is_one and len(np.unique(natural)) == len(natural) else None
