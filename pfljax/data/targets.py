"""Targets of each kind of task, and the labels by which a partition divides them."""

from typing import Any

import numpy as np

from pfljax.core.kinds import KINDS
from pfljax.core.requirements import require_known
from pfljax.data.values import to_32_bits

DECILES = 10  # of a real target, by which partitions of labels divide


def infer_kind(y: np.ndarray) -> str:
    """The kind of a target by its type and shape; "classes" if it may be that."""
    if y.ndim == 1:
        real = y.dtype.kind == "f" and np.isfinite(y).all() and (y % 1).any()
        return "regression" if real else "classes"
    if y.ndim != 2 or y.dtype.kind not in "biuf":
        return "classes"
    if y.shape[1] == 1 and y.dtype.kind != "f":
        return "classes"  # labels with an axis too many, which are refused
    if np.isin(y, (0, 1)).all():
        return "multilabel"
    return "regression" if y.dtype.kind == "f" else "tokens"


def convert_target(kind: str, y: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns (y as this kind has it, K: the width of a model's outputs).

    Raises:
      ValueError: the kind is unknown, or y is not of it.
    """
    require_known("task", kind, KINDS)
    expected = f"the task {kind!r} expects {KINDS[kind].target}"
    if y.dtype.kind not in "biuf":
        raise ValueError(f"targets are of type {y.dtype}; {expected}")
    if y.ndim == 1 and kind in ("regression", "ratings"):
        y = y[:, None]
    if y.ndim != 2 or 0 in y.shape:
        raise ValueError(f"targets have shape {list(y.shape)}; {expected}")
    if not np.isfinite(y.astype(np.float64)).all():
        raise ValueError(f"targets hold NaN or infinity; {expected}")
    if kind == "tokens":
        if y.dtype.kind == "f" or y.min() < -1 or y.max() < 0:
            raise ValueError(
                f"targets are {y.dtype} from {y.min()} to {y.max()}; {expected}"
            )
        return y.astype(np.int32), int(y.max()) + 1
    if kind == "multilabel" and not np.isin(y, (0, 1)).all():
        raise ValueError(f"targets hold {y[~np.isin(y, (0, 1))][0]:g}; {expected}")
    y = y.astype(np.float32) if y.dtype.kind == "b" else to_32_bits("y", y, np.float32)
    return y, y.shape[1]


def strata(kind: str, y: Any) -> tuple[np.ndarray, int]:
    """Returns (the label i32[N] by which examples are dealt and counted, their number).

    A real target has its decile, and several labels the first one that is 1, or K if
    there is none. Sequences of tokens have no label: all of them are 0.
    """
    y = np.asarray(y)
    if kind == "multilabel":
        first = np.where(y.any(1), y.argmax(1), y.shape[1])
        return first.astype(np.int32), y.shape[1] + 1
    if kind == "tokens":
        return np.zeros(len(y), np.int32), 1
    edges = np.quantile(y[:, 0], np.arange(1, DECILES) / DECILES)
    return np.searchsorted(edges, y[:, 0], "right").astype(np.int32), DECILES


def integers(y: Any) -> np.ndarray:
    """The target as integers of the same bits, for checksums."""
    y = np.asarray(y)
    return y.view(np.int32) if y.dtype.kind == "f" else y
