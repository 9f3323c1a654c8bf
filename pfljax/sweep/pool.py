"""The rows of several federations as one pool, for the runs of one program."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax.core.types import Examples
from pfljax.data import Federation

SPLITS = ("test", "validation")
Span = tuple[Any, Any]  # offset and size


class Rows(NamedTuple):
    """Whose rows are judged."""

    own: Span  # i32[F, C], each client's
    different: Span  # i32[F, U], without repeats
    place: Any  # i32[F, C], which of them is a client's


class Data(NamedTuple):
    """F federations whose rows lie in one pool."""

    pool: Examples  # [N, ...]
    train: Span  # i32[F, C]
    judged: dict[str, Rows]  # by split, where a client has such rows


def stack(federations: list[Federation]) -> Data:
    """The federations with one copy of every pool, on the host."""
    # Seeds of one data set often share its pool: by identity, for rows are many.
    pools = {id(f.train.examples): f.train.examples for f in federations}
    ends = np.cumsum([0, *(len(pool.y) for pool in pools.values())])
    if ends[-1] > np.iinfo(np.int32).max:
        raise ValueError(
            f"the seeds' federations have {ends[-1]} rows together; at most 2**31 - 1 "
            "are held: sweep fewer seeds at once"
        )
    starts = dict(zip(pools, ends, strict=False))
    judged = {}
    for split in SPLITS:
        spans = _moved([getattr(f, split) for f in federations], starts)
        if spans[1].any():
            different, index = _different(*spans)
            judged[split] = Rows(own=spans, different=different, place=index)
    return Data(
        pool=jax.tree.map(_concatenate, *pools.values()),
        train=_moved([f.train for f in federations], starts),
        judged=judged,
    )


def _moved(rows: Sequence[Any], starts: dict[int, int]) -> Span:
    """Spans i32[F, C] in the joint pool, where each pool begins at its `starts`."""
    offset = [np.asarray(data.offset) + starts[id(data.examples)] for data in rows]
    return np.stack(offset).astype(np.int32), np.stack([data.size for data in rows])


def _concatenate(*parts: Any) -> np.ndarray:
    """The leaves of all pools one after another; a single one is not copied."""
    arrays = [np.asarray(part) for part in parts]
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]


def _different(offset: np.ndarray, size: np.ndarray) -> tuple[Span, np.ndarray]:
    """(spans i32[F, U], index i32[F, C]): each federation's rows without repeats.

    Federations with fewer different spans are padded by empty ones.
    """
    uniques = []
    indices = []
    for spans in np.stack([offset, size], axis=2):
        unique, index = np.unique(spans, axis=0, return_inverse=True)
        uniques.append(unique)
        indices.append(index.ravel())
    most = max(len(unique) for unique in uniques)
    padded = [np.pad(unique, ((0, most - len(unique)), (0, 0))) for unique in uniques]
    offset, size = np.moveaxis(np.stack(padded), 2, 0)
    return (offset, size), np.stack(indices)
