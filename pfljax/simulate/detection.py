"""The rows by which a run judges the detection of classes that clients do not hold."""

import numpy as np

from pfljax.data import Federation
from pfljax.engine import mesh
from pfljax.evaluation.uncertainty import Foreign, foreign_rows


def foreign(
    grid: mesh.Grid | None, federation: Federation, count: int
) -> dict[str, Foreign]:
    """About `count` rows by split, on every device; the federation is on the host."""
    by_split = {}
    for split in ("test", "validation"):
        judged = getattr(federation, split)
        if not np.asarray(judged.size).any():
            continue
        num_classes = federation.num_classes
        chosen = foreign_rows(federation.train, judged, num_classes, count)
        examples = mesh.place(grid, chosen.examples)
        by_split[split] = chosen._replace(examples=examples)
    return by_split


def of_split(federation: Federation, split: str) -> list[Foreign]:
    """Those of a split: one, or none where the run judges no detection."""
    return [federation.foreign[split]] if federation.foreign else []
