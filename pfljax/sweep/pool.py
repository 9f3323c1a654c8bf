"""The examples of several federations as one pool, for the runs of one program."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax.core.types import ClientData, Examples
from pfljax.data import Federation
from pfljax.evaluation import uncertainty

SPLITS = ("test", "validation")
Span = tuple[Any, Any]  # offset and size


class Split(NamedTuple):
    """The examples of one split, by which clients are evaluated."""

    spans: Span  # i32[F, C], of each client
    unique: Span  # i32[F, U], the same without repeats
    span_of_client: Any  # i32[F, C], the index of each client's span in `unique`
    # (i32[F, n], bool[F, C, K]): the examples of the pool that evaluate whether clients
    # detect classes that they do not hold, and the classes that they hold; () for none.
    ood: tuple[Any, Any] | tuple[()]


class Data(NamedTuple):
    """F federations whose examples lie in one pool."""

    pool: Examples  # [N, ...]
    train: Span  # i32[F, C]
    splits: dict[str, Split]  # by name, where a client has such examples
    public: ClientData | None  # examples of the servers, leaves [F, ...]


def stack(federations: list[Federation], ood_examples: int = 0) -> Data:
    """The federations with one copy of every pool, on the host.

    `ood_examples` is the setting of this name; all federations have equally many.
    """
    # Seeds of one data set often share its pool, which is known by its identity.
    pools = {}
    for federation in federations:
        examples = federation.train.examples
        pools[id(examples)] = examples
    starts = _starts(pools)
    train = [federation.train for federation in federations]
    splits = {}
    for name in SPLITS:
        clients = [getattr(federation, name) for federation in federations]
        spans = _move(clients, starts)
        _, size = spans
        # A split without examples is left out: nothing is compiled for it.
        if size.any():
            ood = ()
            if ood_examples:
                ood = _choose_ood(federations, clients, starts, ood_examples)
            splits[name] = Split(spans, *_unique(*spans), ood)
    return Data(
        pool=jax.tree.map(_concatenate, *pools.values()),
        train=_move(train, starts),
        splits=splits,
        public=_public(federations),
    )


def _public(federations: Sequence[Federation]) -> ClientData | None:
    """The examples of each server, which all federations have or none has."""
    of_servers = [federation.public for federation in federations]
    if of_servers[0] is None:
        return None
    # They are no part of the pool: a server has all of its own examples.
    return jax.tree.map(lambda *leaves: np.stack(leaves), *of_servers)


def public_shapes(federation: Federation) -> tuple[Any, ...]:
    """Shapes and dtypes of the server's examples; () where it has none."""
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
            f"the federations of all seeds have {end} examples together, and at most "
            "2**31 - 1 fit; sweep fewer seeds at once"
        )
    return starts


def _choose_ood(
    federations: Sequence[Federation],
    clients: Sequence[ClientData],
    starts: Mapping[int, int],
    count: int,
) -> tuple[np.ndarray, np.ndarray]:
    """`Split.ood` for the examples of one split."""
    chosen = []
    held = []
    for federation, data in zip(federations, clients, strict=True):
        start = starts[id(data.examples)]
        chosen.append(start + uncertainty.select_evenly(data, count))
        classes = federation.num_classes
        held.append(uncertainty.classes_held(federation.train, classes))
    return np.stack(chosen).astype(np.int32), np.stack(held)


def count_ood(federation: Federation, count: int) -> tuple[int, ...]:
    """The number of examples in `Split.ood` of a federation, by split."""
    if not count:
        return ()
    splits = [getattr(federation, name) for name in SPLITS]
    return tuple(len(uncertainty.select_evenly(data, count)) for data in splits)


def _move(clients: Sequence[ClientData], starts: Mapping[int, int]) -> Span:
    """Spans i32[F, C] in the joint pool, in which each pool begins at its `starts`."""
    offsets = []
    sizes = []
    for data in clients:
        start = starts[id(data.examples)]
        offsets.append(np.asarray(data.offset) + start)
        sizes.append(data.size)
    offset = np.stack(offsets).astype(np.int32)
    size = np.stack(sizes)
    return offset, size


def _concatenate(*parts: Any) -> np.ndarray:
    """The leaves of all pools, concatenated; a single one is not copied."""
    arrays = [np.asarray(part) for part in parts]
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays)


def _unique(offset: np.ndarray, size: np.ndarray) -> tuple[Span, np.ndarray]:
    """(spans i32[F, U], index i32[F, C]): the spans of each federation without repeats.

    Federations with fewer unique spans are padded with empty ones.
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
