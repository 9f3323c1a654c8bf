"""The manifest of a federation: where every row came from.

Counts by client are plain JSON; what is told of each row are arrays.
"""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax import registry
from pfljax.data.arrays import OFFICIAL_NAMES, Arrays
from pfljax.data.partitions import PARTITIONS

if TYPE_CHECKING:
    pass

PARTS = ("train", "validation", "test")
PER_CLIENT = ("clients", "sizes", "class_histogram", "official")


def describe(
    arrays: Arrays,
    order: np.ndarray,
    offsets: np.ndarray,
    sizes: np.ndarray,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """The manifest of pool rows `order`, with offsets and sizes i64[3, C].

    `class_histogram` [C][K] and `official` [C][3] count a client's rows of all three
    parts; `sha256` covers labels, row numbers, offsets and sizes.
    """
    labels = arrays.y[order]
    counts = sum(
        _count(labels, arrays.num_classes, *part) for part in _parts(offsets, sizes)
    )
    origin = sum(
        _count(arrays.official[order], len(OFFICIAL_NAMES), *part)
        for part in _parts(offsets, sizes)
    )
    return {
        "dataset": arrays.name,
        "source": arrays.source,
        **settings,
        "params": _with_defaults(settings),
        "num_classes": arrays.num_classes,
        "official_names": list(OFFICIAL_NAMES),
        "clients": list(range(sizes.shape[1])),
        "sizes": {name: n.tolist() for name, n in zip(PARTS, sizes, strict=True)},
        "class_histogram": np.asarray(counts).tolist(),
        "official": np.asarray(origin).tolist(),
        "sha256": _digest(labels, order, offsets, sizes),
    }


def subset(manifest: dict[str, Any], ids: Sequence[int]) -> dict[str, Any]:
    """The manifest of the clients `ids`; its hash stays that of the whole."""
    chosen = {
        name: [manifest[name][k] for k in ids] for name in PER_CLIENT if name != "sizes"
    }
    sizes = {part: [n[k] for k in ids] for part, n in manifest["sizes"].items()}
    return {**manifest, **chosen, "sizes": sizes}


def _parts(offsets: np.ndarray, sizes: np.ndarray) -> zip:
    return zip(offsets, sizes, strict=True)


def _count(
    values: np.ndarray, kinds: int, offset: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """i64[C, kinds]: values of each client's rows; a shared region is read once."""
    regions, which = np.unique(
        np.stack([offset, size], axis=1), axis=0, return_inverse=True
    )
    at, n = regions.T
    owner = np.repeat(np.arange(len(n)), n)
    rows = np.arange(len(owner)) - np.repeat(np.cumsum(n) - n - at, n)
    flat = np.bincount(owner * kinds + values[rows], minlength=len(n) * kinds)
    return flat.reshape(len(n), kinds)[which.reshape(-1)]


def _with_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """The partition's parameters, with the defaults that were not overridden."""
    function = PARTITIONS.get(settings["partition"])
    known = registry.defaults(function) if function else {}
    known.pop("client", None)
    return {**known, **settings["params"]}


def _digest(*arrays: np.ndarray) -> str:
    """SHA-256 in hexadecimal, the same on every machine."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, "<i8").tobytes())
    return digest.hexdigest()
