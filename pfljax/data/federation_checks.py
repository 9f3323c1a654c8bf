"""Checks a federation that a user made by hand, before a run uses it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pfljax.core.types import ClientData, Examples
from pfljax.data.arrays import Arrays, from_arrays
from pfljax.data.federation import Federation
from pfljax.data.manifest import PER_CLIENT
from pfljax.data.values import brief, type_text

IN_MANIFEST = ("dataset", "kind", "num_classes", "sha256", "sizes", "official_names")
REMEDY = "data.federate(arrays, data.from_indices(...)) makes one"


def check_federation(federation: Any) -> None:
    """Checks that a run can use the federation; 0.03 s for 60,000 x 784 float32.

    Raises:
        ValueError: it is no Federation, clients read beyond the pool or have nothing to
            train on, the pool is no data set, or the manifest lacks what a run reads.
    """
    if not isinstance(federation, Federation):
        raise ValueError(
            f"federation is {brief(federation)}; expected a Federation: {REMEDY}"
        )
    for name, part in federation.parts.items():
        _check_part(name, part)
    pool = federation.train.examples
    arrays = _check_examples("the pool", pool, federation)
    for name, part in federation.parts.items():
        if not all(map(_are_equal, pool, part.examples)):
            raise ValueError(
                f"{name} has a pool of its own; expected that of train: all examples "
                "in one pool, with an offset and a size of each client"
            )
        _check_spans(name, part, np.size(federation.train.size), len(arrays.y))
    empty = np.flatnonzero(np.asarray(federation.train.size) == 0)
    if len(empty):
        raise ValueError(
            f"{len(empty)} of {federation.num_clients} clients have no training "
            f"examples, first client {empty[0]}; leave them out: federation.take(ids)"
        )
    for name in ("index", "official"):
        values = getattr(federation, name)
        if values is not None and np.shape(values) != (len(arrays.y),):
            raise ValueError(
                f"{name} has shape {list(np.shape(values))}; expected "
                f"[{len(arrays.y)}], as the pool, or None"
            )
    if federation.public is not None:
        _check_public(federation, arrays.x.shape[1:])
    _check_manifest(federation)


def _check_part(name: str, part: Any) -> None:
    if not isinstance(part, ClientData) or not isinstance(part.examples, Examples):
        raise ValueError(
            f"{name} is {brief(part)}; expected ClientData(Examples(x, y), offset, "
            "size)"
        )


def _are_equal(a: Any, b: Any) -> bool:
    return a is b or np.array_equal(a, b)


def _check_examples(name: str, examples: Examples, federation: Federation) -> Arrays:
    """Checks examples as `from_arrays` does; they must be as it stores them."""
    try:
        arrays = from_arrays(
            examples.x,
            examples.y,
            num_classes=federation.num_classes,
            task=federation.kind,
            shift=federation.shift,
            scale=federation.scale,
            class_names=federation.class_names,
        )
    except ValueError as error:
        raise ValueError(f"{name} is no data set: {error}") from error
    dtype = np.asarray(examples.x).dtype
    if dtype != arrays.x.dtype:
        raise ValueError(f"x of {name} is {dtype}; expected {arrays.x.dtype}: {REMEDY}")
    return arrays


def _check_spans(name: str, part: ClientData, num_clients: int, count: int) -> None:
    """Checks offsets and sizes of so many clients, in a pool of `count` examples."""
    for field in ("offset", "size"):
        values = np.asarray(getattr(part, field))
        if values.shape != (num_clients,) or values.dtype.kind not in "iu":
            raise ValueError(
                f"{name}.{field} is {type_text(values)}; expected integers "
                f"[{num_clients}], one a client"
            )
    offset = np.asarray(part.offset)
    size = np.asarray(part.size)
    # 64 bits: the end of a span may lie beyond 32.
    end = offset.astype(np.int64) + size
    wrong = np.flatnonzero((offset < 0) | (size < 0) | (end > count))
    if len(wrong):
        k = wrong[0]
        raise ValueError(
            f"{name} of client {k} has offset {offset[k]} and size {size[k]}; expected "
            f"a part of the pool's {count} examples ({len(wrong)} such clients)"
        )


def _check_public(federation: Federation, shape: tuple[int, ...]) -> None:
    public: Any = federation.public
    _check_part("public", public)
    arrays = _check_examples("public", public.examples, federation)
    if arrays.x.shape[1:] != shape:
        raise ValueError(
            f"examples of public have shape {list(arrays.x.shape[1:])}, those of the "
            f"pool {list(shape)}: every model reads both"
        )
    offset = np.atleast_1d(public.offset)
    size = np.atleast_1d(public.size)
    _check_spans("public", public._replace(offset=offset, size=size), 1, len(arrays.y))


def _check_manifest(federation: Federation) -> None:
    manifest = federation.manifest
    if not isinstance(manifest, Mapping):
        raise ValueError(f"manifest is {brief(manifest)}; expected a dict: {REMEDY}")
    missing = [name for name in (*IN_MANIFEST, *PER_CLIENT) if name not in manifest]
    if missing:
        raise ValueError(f"manifest lacks {', '.join(missing)}: {REMEDY}")
    counts = [manifest[name] for name in PER_CLIENT] + list(manifest["sizes"].values())
    if any(len(values) != federation.num_clients for values in counts):
        raise ValueError(
            f"manifest describes clients {brief(manifest['clients'])}; expected the "
            f"numbers of {federation.num_clients}: {REMEDY}"
        )
