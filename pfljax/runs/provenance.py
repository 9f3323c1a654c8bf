"""Where the rows of a run came from: partition.json and partition.npz."""

from typing import Any

import numpy as np

from pfljax.data.arrays import OWN
from pfljax.data.federation import Federation
from pfljax.data.manifest import PARTS
from pfljax.runs import fingerprint


def of_run(
    training: Federation, unseen: Federation | None, given: bool
) -> dict[str, Any]:
    """partition.json: the manifest, newcomers apart, and what the model sees of a row.

    Rows that were `given` in Python, or read of files of one's own, are known by their
    content as well, see `fingerprint`: no published data set stands for them.
    """
    x = training.train.examples.x
    described = {
        "unseen": unseen.manifest if unseen else None,
        "given": given,
        "input_shape": list(x.shape[1:]),
        "shift": np.asarray(training.shift).tolist(),
        "scale": np.asarray(training.scale).tolist(),
    }
    if given or training.manifest.get("source") == OWN:
        described |= _content(training, unseen)
    return training.manifest | described


def _content(training: Federation, unseen: Federation | None) -> dict[str, int]:
    """Checksums of rows, labels, spans, and the server's rows."""
    pool = training.train.examples
    spans = _all_spans(training, unseen).values()
    content = {
        **fingerprint.of_rows("x", np.asarray(pool.x)),
        "labels_crc32": fingerprint.of_integers(pool.y),
        "spans_crc32": fingerprint.of_integers(*spans),
    }
    if training.public is not None:
        examples = training.public.examples
        content |= fingerprint.of_rows("public", np.asarray(examples.x))
        content["public_labels_crc32"] = fingerprint.of_integers(examples.y)
    return content


def rows_of_run(
    training: Federation, unseen: Federation | None
) -> dict[str, np.ndarray]:
    """partition.npz: `row` i32[N] and `official` u8[N] of the pool, whose they are.

    Client k's training, validation and test rows are the three spans `offset` and
    `size` i32[3, C] of the pool; `unseen_offset` and `unseen_size` are the newcomers'.
    """
    if training.row is None:  # a federation built by hand
        return {}
    arrays = {"row": training.row, "official": training.official}
    return arrays | _all_spans(training, unseen)


def _all_spans(
    training: Federation, unseen: Federation | None
) -> dict[str, np.ndarray]:
    """`offset` and `size` of who trains, and of newcomers, i32[3, C] each."""
    spans = {
        "offset": _spans(training, "offset"),
        "size": _spans(training, "size"),
    }
    if unseen is not None:
        spans["unseen_offset"] = _spans(unseen, "offset")
        spans["unseen_size"] = _spans(unseen, "size")
    return spans


def _spans(federation: Federation, field: str) -> np.ndarray:
    """`offset` or `size` of each client's training, validation and test rows [3, C]."""
    parts = [getattr(federation, part) for part in PARTS]
    return np.stack([np.asarray(getattr(part, field)) for part in parts])
