"""The rows of several federations as one pool, for the runs of one program."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax.core.types import ClientData, Examples
from pfljax.data import Federation
from pfljax.evaluation import uncertainty

SPLITS = ("test", "validation")
Span = tuple[Any, Any]  # offset and size


class Rows(NamedTuple):
    """Whose rows are judged."""

    spans: Span  # i32[F, C], each client's
    unique: Span  # i32[F, U], the same without repeats
    span_of_client: Any  # i32[F, C], which of the unique ones is a client's
    # (i32[F, n], bool[F, C, K]): rows of the pool by which the detection of classes
    # that clients do not hold is judged, and who holds which; () where it is not.
    ood: tuple[Any, Any] | tuple[()]


class Data(NamedTuple):
    """F federations whose rows lie in one pool."""

    pool: Examples  # [N, ...]
    train: Span  # i32[F, C]
    judged: dict[str, Rows]  # by split, where a client has such rows
    public: ClientData | None  # the servers' rows, leaves [F, ...]; None for none


def stack(federations: list[Federation], ood: int = 0) -> Data:
    """The federations with one copy of every pool, on the host.

    `ood` is the setting `ood_examples`; all federations have as many such rows.
    """
    # Seeds of one data set often share its pool: by identity, for rows are many.
    pools = {}
    for federation in federations:
        examples = federation.train.examples
        pools[id(examples)] = examples
    starts = _starts(pools)
    train = [federation.train for federation in federations]
    judged = {}
    for split in SPLITS:
        rows = [getattr(federation, split) for federation in federations]
        spans = _move(rows, starts)
        _, size = spans
        # A split without rows is left out: nothing is compiled for it.
        if size.any():
            others = _select_ood(federations, rows, starts, ood) if ood else ()
            judged[split] = _rows(spans, others)
    return Data(
        pool=jax.tree.map(_concatenate, *pools.values()),
        train=_move(train, starts),
        judged=judged,
        public=_public(federations),
    )


def _public(federations: Sequence[Federation]) -> ClientData | None:
    """The rows of each federation's server, which all have or none has."""
    of_servers = [federation.public for federation in federations]
    if of_servers[0] is None:
        return None
    # Apart from the pool: a server's rows are all that its examples hold.
    return jax.tree.map(lambda *leaves: np.stack(leaves), *of_servers)


def public_shapes(federation: Federation) -> tuple[Any, ...]:
    """Shapes and dtypes of the server's rows; () where it has none."""
    leaves = map(np.asarray, jax.tree.leaves(federation.public))
    return tuple((leaf.shape, leaf.dtype) for leaf in leaves)


def _starts(pools: Mapping[int, Examples]) -> dict[int, int]:
    """Where each pool begins in the joint one."""
    starts = {}
    end = 0
    for identity, pool in pools.items():
        starts[identity] = end
        end += len(pool.y)
    # Offsets are int32 on the device.
    if end > np.iinfo(np.int32).max:
        raise ValueError(
            f"the seeds' federations have {end} rows together; at most 2**31 - 1 "
            "are held: sweep fewer seeds at once"
        )
    return starts


def _select_ood(
    federations: Sequence[Federation],
    judged: Sequence[ClientData],
    starts: Mapping[int, int],
    count: int,
) -> tuple[np.ndarray, np.ndarray]:
    """`Rows.ood`, for the rows of one split."""
    rows = []
    held = []
    for federation, data in zip(federations, judged, strict=True):
        start = starts[id(data.examples)]
        rows.append(start + uncertainty.select_evenly(data, count))
        classes = federation.num_classes
        held.append(uncertainty.classes_held(federation.train, classes))
    return np.stack(rows).astype(np.int32), np.stack(held)


def count_ood(federation: Federation, count: int) -> tuple[int, ...]:
    """How many rows of `Rows.ood` a federation has, by split."""
    if not count:
        return ()
    judged = [getattr(federation, split) for split in SPLITS]
    return tuple(len(uncertainty.select_evenly(rows, count)) for rows in judged)


def _rows(spans: Span, ood: tuple[Any, Any] | tuple[()]) -> Rows:
    """The spans of one split, with and without repeats."""
    unique, span_of_client = _unique(*spans)
    return Rows(
        spans=spans,
        unique=unique,
        span_of_client=span_of_client,
        ood=ood,
    )


def _move(rows: Sequence[ClientData], starts: Mapping[int, int]) -> Span:
    """Spans i32[F, C] in the joint pool, where each pool begins at its `starts`."""
    offsets = []
    sizes = []
    for data in rows:
        start = starts[id(data.examples)]
        offsets.append(np.asarray(data.offset) + start)
        sizes.append(data.size)
    offset = np.stack(offsets).astype(np.int32)
    size = np.stack(sizes)
    return offset, size


def _concatenate(*parts: Any) -> np.ndarray:
    """The leaves of all pools one after another; a single one is not copied."""
    arrays = [np.asarray(part) for part in parts]
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays)


def _unique(offset: np.ndarray, size: np.ndarray) -> tuple[Span, np.ndarray]:
    """(spans i32[F, U], index i32[F, C]): each federation's rows without repeats.

    Federations with fewer unique spans are padded by empty ones.
    """
    uniques = []
    indices = []
    for spans in np.stack([offset, size], axis=2):
        unique, index = np.unique(spans, axis=0, return_inverse=True)
        uniques.append(unique)
        # Some versions of NumPy give the index the shape of what it indexes.
        indices.append(index.ravel())
    most = max(len(unique) for unique in uniques)
    padded = []
    for unique in uniques:
        empty = most - len(unique)
        padded.append(np.pad(unique, ((0, empty), (0, 0))))
    offset, size = np.moveaxis(np.stack(padded), 2, 0)
    return (offset, size), np.stack(indices)
