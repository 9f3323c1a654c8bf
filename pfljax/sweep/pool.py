"""The rows of several federations as one pool, for the runs of one program."""

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
    pools = {id(f.train.examples): f.train.examples for f in federations}
    ends = np.cumsum([0, *(len(pool.y) for pool in pools.values())])
    if ends[-1] > np.iinfo(np.int32).max:
        raise ValueError(
            f"the seeds' federations have {ends[-1]} rows together; at most 2**31 - 1 "
            "are held: sweep fewer seeds at once"
        )
    starts = dict(zip(pools, ends, strict=False))

    def moved(part: str) -> Span:
        spans = [getattr(f, part) for f in federations]
        offset = [np.asarray(span.offset) + starts[id(span.examples)] for span in spans]
        return np.stack(offset).astype(np.int32), np.stack([s.size for s in spans])

    def joined(*parts: Any) -> np.ndarray:
        arrays = [np.asarray(part) for part in parts]
        return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]

    judged = {split: moved(split) for split in SPLITS}
    return Data(
        jax.tree.map(joined, *pools.values()),
        moved("train"),
        {
            split: Rows(span, *_different(*span))
            for split, span in judged.items()
            if span[1].any()
        },
    )


def _different(offset: np.ndarray, size: np.ndarray) -> tuple[Span, np.ndarray]:
    """(spans i32[F, U], place i32[F, C]): each federation's rows without repeats."""
    found = [
        np.unique(np.stack(pair, 1), axis=0, return_inverse=True)
        for pair in zip(offset, size, strict=True)
    ]
    most = max(len(spans) for spans, _ in found)
    spans = [np.pad(spans, ((0, most - len(spans)), (0, 0))) for spans, _ in found]
    offset, size = np.moveaxis(np.stack(spans), 2, 0)
    return (offset, size), np.stack([place.ravel() for _, place in found])
