"""The changes in an upload, from the origin that its method declares.

An origin (`Algorithm.origin`) is shaped like the upload, with None at leaves that are
no change. For IFCA, where client k trained the second of two models:

    upload   {"params": w_k, "choice": [0, 1]}
    origin   {"params": w_2, "choice": None}
    parts    values {"params": w_k}, which began at {"params": w_2}; others {"choice"}
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.types import Array, Origin, Upload


class Parts(NamedTuple):
    """The parts of an upload, each shaped as the upload with None at absent leaves."""

    start: Origin  # of the leaves that are a change
    values: Upload  # these leaves, as they are sent
    others: Upload  # the leaves that are no change


def parts(origin: Origin, upload: Upload) -> Parts:
    """The changed leaves of an upload and their start, separate from the others."""

    def start_leaf(leaf: Array, start: Any) -> Any:
        return start if is_change(leaf, start) else None

    changed = jax.tree.map(is_change, upload, origin)
    values, others = tree.split(upload, changed)
    return Parts(
        start=jax.tree.map(start_leaf, upload, origin),
        values=values,
        others=others,
    )


def is_change(leaf: Array, start: Any) -> bool:
    """Whether a leaf has coordinates of a change: counts, labels, flags have none."""
    return start is not None and bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def absent(origin: Origin, upload: Upload) -> list[str]:
    """The paths of the upload's leaves that have no origin."""
    missing = jax.tree.map(lambda leaf, start: start is None, upload, origin)
    return [path for path, is_missing in tree.paths(missing).items() if is_missing]


def fits(origin: Origin, upload: Upload) -> bool:
    """Whether the origin has a leaf of the same shape, or None, at every leaf."""

    # None is an empty tree to JAX: without `is_leaf` it could not stand for a leaf.
    def flat(a: Any) -> Any:
        return jax.tree.flatten(a, is_leaf=lambda leaf: leaf is None)

    starts, structure = flat(origin)
    leaves, expected = flat(upload)
    if structure != expected:
        return False
    pairs = zip(starts, leaves, strict=True)
    return all(a is None or _shape(a) == _shape(b) for a, b in pairs)


def _shape(leaf: Any) -> tuple[int, ...] | None:
    """The shape of a leaf; None for None."""
    return None if leaf is None else jnp.shape(leaf)
