"""The manifest of a federation: source, settings and counts of each client, as JSON."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from pfljax.core import factories
from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, Grouping
from pfljax.data.partitions import PARTITIONS
from pfljax.data.partitions.base import Partition, rank
from pfljax.data.split import natural_owner
from pfljax.data.targets import integers

PARTS = ("train", "validation", "test")
PER_CLIENT = ("clients", "class_histogram", "official")  # and the sizes, by part
GROUPS = "groups"  # a value of each client by name, such as "domain"
NAMES = "client_names"  # of clients, if they are no numbers


def describe(
    arrays: Arrays,
    order: np.ndarray,
    offsets: np.ndarray,
    sizes: np.ndarray,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """Describes a pool of the examples `order`, with offsets and sizes i64[3, C].

    `class_histogram[C][K]` and `official[C][3]` count a client's examples of all three
    parts; `sha256` covers labels, indices, offsets and sizes.
    """
    num_clients = sizes.shape[1]
    labels, num_labels = arrays.labels[order], arrays.num_labels
    official = arrays.official[order]
    label_counts = np.zeros((num_clients, num_labels), np.int64)
    official_counts = np.zeros((num_clients, len(OFFICIAL_NAMES)), np.int64)
    for offset, size in zip(offsets, sizes, strict=True):
        label_counts += _count(labels, num_labels, offset, size)
        official_counts += _count(official, len(OFFICIAL_NAMES), offset, size)
    return {
        "dataset": arrays.name,
        "source": arrays.source,
        **settings,
        "params": _with_defaults(settings),
        "kind": arrays.kind,
        "num_classes": arrays.num_classes,
        "official_names": list(OFFICIAL_NAMES),
        "clients": list(range(num_clients)),
        "sizes": {name: n.tolist() for name, n in zip(PARTS, sizes, strict=True)},
        "class_histogram": label_counts.tolist(),
        "official": official_counts.tolist(),
        "sha256": _digest(integers(arrays.y)[order], order, offsets, sizes),
    }


def subset(manifest: dict[str, Any], ids: Sequence[int]) -> dict[str, Any]:
    """Returns the manifest of the clients `ids`; its hash stays that of the whole."""
    part_of = dict(manifest)
    for name in (*PER_CLIENT, *({NAMES} & manifest.keys())):
        part_of[name] = [manifest[name][k] for k in ids]
    for name in ("sizes", *({GROUPS} & manifest.keys())):
        part_of[name] = {
            part: [values[k] for k in ids] for part, values in manifest[name].items()
        }
    return part_of


def find_left_out(
    arrays: Arrays, how: str | Partition, order: np.ndarray
) -> dict[str, list[int]]:
    """Names the natural clients without an example in `order`, for the manifest."""
    if how != "natural" or arrays.client is None:
        return {}
    missing = np.setdiff1d(arrays.client, arrays.client[order]).tolist()
    return {"left_out": missing} if missing else {}


def find_names(arrays: Arrays, dealt: Partition) -> dict[str, Any]:
    """Names of clients and classes that are no numbers, and groups, for the manifest.

    A client is in a group if all of its examples are; a grouping that some clients are
    not in is left out.
    """
    names: dict[str, Any] = {}
    groups = dict(arrays.groups)
    # In LEAF's split by user clients differ in it.
    if len(np.unique(arrays.official[dealt.order])) > 1:
        groups["official"] = Grouping(arrays.official, OFFICIAL_NAMES)
    for group, (number, values) in groups.items():
        of_example = number[dealt.order]
        of_client = of_example[dealt.offset]
        if np.array_equal(of_example, np.repeat(of_client, dealt.size)):
            by_name = names.setdefault(GROUPS, {})
            by_name[group] = [values[k] for k in of_client]
    owner = natural_owner(arrays, dealt)
    if dealt.names:
        names[NAMES] = list(dealt.names)
    elif owner is not None and arrays.client_names:
        names[NAMES] = [arrays.client_names[k] for k in owner]
    if arrays.class_names != tuple(map(str, range(arrays.num_classes))):
        names["class_names"] = list(arrays.class_names)
    return names


def _count(
    values: np.ndarray, num_values: int, offset: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """Counts the examples of each client that have each value, i64[C, num_values]."""
    # Shared test examples are one region of many clients, which is counted once.
    regions, region_of_client = np.unique(
        np.stack([offset, size], axis=1), axis=0, return_inverse=True
    )
    start, length = regions.T
    region = np.repeat(np.arange(len(regions)), length)
    index = start[region] + rank(length)
    # Each pair of region and value has a number, so that one bincount counts all.
    pair = region * num_values + values[index]
    counts = np.bincount(pair, minlength=len(regions) * num_values)
    by_region = counts.reshape(len(regions), num_values)
    return by_region[region_of_client.reshape(-1)]


def _with_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the partition's parameters, with its defaults."""
    function = factories.get("partition", PARTITIONS, settings["partition"])
    known = factories.defaults(function) if function else {}
    # The clients are an argument of "natural", and not a user's option.
    known.pop("client", None)
    return {**known, **settings["params"]}


def _digest(*arrays: np.ndarray) -> str:
    """Returns the SHA-256 in hexadecimal, the same on every machine."""
    digest = hashlib.sha256()
    for array in arrays:
        # 64 bits, little-endian, whatever the machine's integers are.
        digest.update(np.ascontiguousarray(array, "<i8").tobytes())
    return digest.hexdigest()
