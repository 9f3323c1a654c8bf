"""partition.npz: the examples of each client.

manifest         JSON text: data set, clients, their sizes and classes, checksums, model
index, official  of each example of the pool: its place in the data set, and whether it
                 is of the official test split
offset, size     i32[3, C]: the training, validation and test examples of each client,
                 as spans of the pool; unseen_offset and unseen_size for newcomers
"""

import zlib
from typing import Any

import numpy as np

from pfljax.data.arrays import OWN
from pfljax.data.federation import Federation
from pfljax.data.manifest import PARTS
from pfljax.data.targets import integers


def manifest(
    training: Federation, unseen: Federation | None, from_python: bool
) -> dict[str, Any]:
    """The description of the clients, and the shape and scale of the model's inputs.

    Examples that come `from_python` or from the user's files have checksums as well, as
    no published data set identifies them.
    """
    x = training.train.examples.x
    described = {
        **training.manifest,
        "unseen": unseen.manifest if unseen else None,
        "given": from_python,
        "input_shape": list(x.shape[1:]),
        "shift": np.asarray(training.shift).tolist(),
        "scale": np.asarray(training.scale).tolist(),
    }
    if from_python or training.manifest.get("source") == OWN:
        described |= _checksums(training, unseen)
    return described


def _checksums(training: Federation, unseen: Federation | None) -> dict[str, int]:
    """Checksums of examples, labels, spans, and the server's examples."""
    pool = training.train.examples
    checksums = {
        "x_crc32": crc(pool.x),
        "labels_crc32": _crc_of_integers(integers(pool.y)),
        "spans_crc32": _crc_of_integers(*_spans(training, unseen).values()),
    }
    if training.public is not None:
        public = training.public.examples
        checksums["public_crc32"] = crc(public.x)
        checksums["public_labels_crc32"] = _crc_of_integers(integers(public.y))
    return checksums


def crc(array: Any, before: int = 0) -> int:
    """CRC-32 of the bytes of an array: 0.5 s a GiB."""
    array = np.ascontiguousarray(array)
    return zlib.crc32(array.view(np.uint8).data, before)


def _crc_of_integers(*arrays: Any) -> int:
    """The checksum of integers, which is the same for every integer type."""
    checksum = 0
    for array in arrays:
        checksum = crc(np.asarray(array, "<i8"), checksum)
    return checksum


def examples(training: Federation, unseen: Federation | None) -> dict[str, np.ndarray]:
    """The arrays of partition.npz; empty for a federation that was built by hand."""
    if training.index is None:
        return {}
    arrays = {"index": training.index, "official": training.official}
    return arrays | _spans(training, unseen)


def _spans(training: Federation, unseen: Federation | None) -> dict[str, np.ndarray]:
    spans = {}
    for prefix, federation in (("", training), ("unseen_", unseen)):
        for field in ("offset", "size"):
            if federation is not None:
                parts = [getattr(getattr(federation, part), field) for part in PARTS]
                spans[prefix + field] = np.stack([np.asarray(part) for part in parts])
    return spans
