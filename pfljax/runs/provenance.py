"""Where the rows of a run came from: partition.json and partition.npz."""

import zlib
from typing import Any

import numpy as np

from pfljax.data.federation import Federation
from pfljax.data.manifest import PARTS


def of_run(
    training: Federation, unseen: Federation | None, given: bool
) -> dict[str, Any]:
    """partition.json: the manifest, newcomers apart, and what the model sees of a row.

    Rows that were `given` in Python are known by their bytes as well: no name of a data
    set stands for them.
    """
    x = training.train.examples.x
    described = {
        "unseen": unseen.manifest if unseen else None,
        "given": given,
        "input_shape": list(x.shape[1:]),
        "shift": np.asarray(training.shift).tolist(),
        "scale": np.asarray(training.scale).tolist(),
    }
    if given:
        described["x_crc32"] = zlib.crc32(np.ascontiguousarray(x).view(np.uint8).data)
    return training.manifest | described


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
    arrays["offset"] = _spans(training, "offset")
    arrays["size"] = _spans(training, "size")
    if unseen is not None:
        arrays["unseen_offset"] = _spans(unseen, "offset")
        arrays["unseen_size"] = _spans(unseen, "size")
    return arrays


def _spans(federation: Federation, field: str) -> np.ndarray:
    """`offset` or `size` of each client's training, validation and test rows [3, C]."""
    parts = [getattr(federation, part) for part in PARTS]
    return np.stack([np.asarray(getattr(part, field)) for part in parts])
