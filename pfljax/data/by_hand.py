"""A federation that was made by hand, checked once before anything is made of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pfljax.core.types import ClientData, Examples
from pfljax.data.edge import MOST_CLASSES, brief, check_numbers, told
from pfljax.data.federation import Federation
from pfljax.data.manifest import PER_CLIENT
from pfljax.runtime import documents

X_TYPES = ("uint8", "int32", "float32")
MANIFEST = {  # what runs and reports read of it, as JSON has it
    "dataset": str,
    "num_classes": int,
    "sha256": str,
    "sizes": {str: [int]},
    "official_names": [str],
    "clients": [int],
    "class_histogram": [[int]],
    "official": [[int]],
}
MEND = "data.federate(arrays, data.from_rows(...)) makes one"


def check_federation(federation: Any) -> None:
    """Refuses a federation that no run could be right on.

    The rows are looked at as arrays, in one pass: .03 s for 60,000 x 784 float32.

    Raises:
        ValueError: it is no Federation, spans lie outside of the pool, clients have
            nothing to train on, labels are beyond the classes, x is not finite, or the
            manifest lacks what a run reads of it.
    """
    if not isinstance(federation, Federation):
        raise ValueError(
            f"federation is {brief(federation)}; expected a Federation: {MEND}"
        )
    _check_classes(federation)
    _check_parts(federation)
    _check_one_pool(federation)
    row = _check_rows("the pool", federation.train.examples, federation.num_classes)
    check_numbers("shift", federation.shift, row, zero=True)
    check_numbers("scale", federation.scale, row, zero=False)
    rows = len(federation.train.examples.y)
    for name, part in federation.parts.items():
        _check_spans(name, part, rows)
    _check_somebody_trains(federation)
    _check_of_rows(federation, rows)
    _check_public(federation, row)
    _check_manifest(federation)


def _check_classes(federation: Federation) -> None:
    classes = federation.num_classes
    whole = isinstance(classes, int | np.integer) and not isinstance(classes, bool)
    if not whole or not 1 <= classes <= MOST_CLASSES:
        raise ValueError(
            f"num_classes is {brief(classes)}; expected a whole number from 1 to "
            f"{MOST_CLASSES}"
        )
    names = federation.class_names
    if not isinstance(names, list | tuple) or len(names) != classes:
        raise ValueError(
            f"class_names is {brief(names)}; expected {classes} texts, one a class"
        )


def _check_parts(federation: Federation) -> None:
    for name, part in federation.parts.items():
        if not isinstance(part, ClientData) or not isinstance(part.examples, Examples):
            raise ValueError(
                f"{name} is {brief(part)}; expected ClientData(Examples(x, y), offset, "
                "size)"
            )


def _check_one_pool(federation: Federation) -> None:
    """Refuses parts over pools of their own: rows are read of one."""
    pool = federation.train.examples
    for name, part in federation.parts.items():
        for mine, theirs in zip(pool, part.examples, strict=True):
            if mine is not theirs and not np.array_equal(mine, theirs):
                raise ValueError(
                    f"{name} has a pool of its own; expected that of train: all rows "
                    "in one pool, with an offset and a size of each client and part"
                )


def _check_rows(name: str, examples: Examples, classes: int) -> tuple[int, ...]:
    """The shape of a row, of rows that are as models take them."""
    x = np.asarray(examples.x)
    y = np.asarray(examples.y)
    if x.ndim < 2 or 0 in x.shape or x.dtype.name not in X_TYPES:
        raise ValueError(
            f"x of {name} is {told(x)}; expected {', '.join(X_TYPES)} [N, ...], N >= 1"
        )
    if y.shape != x.shape[:1] or y.dtype.kind not in "iu":
        raise ValueError(f"y of {name} is {told(y)}; expected integers [{len(x)}]")
    if y.min() < 0 or y.max() >= classes:
        raise ValueError(
            f"labels of {name} are from {y.min()} to {y.max()}; num_classes is "
            f"{classes}: expected 0 to {classes - 1}"
        )
    # Both are NaN where a number is. A flag a number would be a quarter of the rows.
    if x.dtype.kind == "f" and not np.isfinite([x.min(), x.max()]).all():
        raise ValueError(f"x of {name} holds NaN or infinity; repair these rows")
    return x.shape[1:]


def _check_spans(name: str, part: ClientData, rows: int) -> None:
    offset = np.asarray(part.offset)
    size = np.asarray(part.size)
    for field, values in (("offset", offset), ("size", size)):
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise ValueError(
                f"{name}.{field} is {told(values)}; expected integers [C], one a client"
            )
    if offset.shape != size.shape:
        raise ValueError(
            f"{name} has {len(offset)} offsets and {len(size)} sizes; expected one of "
            "each a client"
        )
    # 64 bits: the end of a span may lie beyond 32.
    end = offset.astype(np.int64) + size
    wrong = np.flatnonzero((offset < 0) | (size < 0) | (end > rows))
    if len(wrong):
        k = wrong[0]
        raise ValueError(
            f"{name} of client {k} has offset {offset[k]} and size {size[k]}; expected "
            f"a span of the pool's rows 0 .. {rows - 1} ({len(wrong)} such clients)"
        )


def _check_somebody_trains(federation: Federation) -> None:
    size = np.asarray(federation.train.size)
    counts = {name: len(part.size) for name, part in federation.parts.items()}
    if not len(size) or len(set(counts.values())) > 1:
        raise ValueError(
            f"clients of each part are {counts}; expected the same number, at least 1"
        )
    empty = np.flatnonzero(size == 0)
    if len(empty):
        raise ValueError(
            f"{len(empty)} of {len(size)} clients have no training rows, first client "
            f"{empty[0]}; leave them out: federation.take(ids)"
        )


def _check_of_rows(federation: Federation, rows: int) -> None:
    for name in ("row", "official"):
        values = getattr(federation, name)
        if values is not None and np.shape(values) != (rows,):
            raise ValueError(
                f"{name} has shape {list(np.shape(values))}; expected [{rows}], as the "
                "pool, or None"
            )


def _check_public(federation: Federation, row: tuple[int, ...]) -> None:
    public = federation.public
    if public is None:
        return
    if not isinstance(public, ClientData) or not isinstance(public.examples, Examples):
        raise ValueError(
            f"public is {brief(public)}; expected None or ClientData(Examples(x, y), "
            "offset, size)"
        )
    shape = _check_rows("public", public.examples, federation.num_classes)
    if shape != row:
        raise ValueError(
            f"rows of public have shape {list(shape)}, those of the pool {list(row)}: "
            "every model reads both; bring public's to the shape of the pool's"
        )
    spans = public._replace(
        offset=np.atleast_1d(public.offset), size=np.atleast_1d(public.size)
    )
    _check_spans("public", spans, len(public.examples.y))


def _check_manifest(federation: Federation) -> None:
    manifest = federation.manifest
    if not isinstance(manifest, Mapping):
        raise ValueError(f"manifest is {brief(manifest)}; expected a dict: {MEND}")
    missing = [name for name in MANIFEST if name not in manifest]
    if missing:
        raise ValueError(
            f"manifest lacks {', '.join(missing)}; it says who holds which rows: {MEND}"
        )
    wrong = documents.misfit(dict(manifest), MANIFEST, "the manifest")
    if wrong:
        raise ValueError(f"{wrong} in the manifest: {MEND}")
    counts = [manifest[name] for name in PER_CLIENT] + list(manifest["sizes"].values())
    clients = manifest["clients"]
    if any(len(values) != federation.num_clients for values in counts):
        raise ValueError(
            f"manifest tells of clients {brief(clients)}; expected the numbers of "
            f"{federation.num_clients}: {MEND}"
        )
