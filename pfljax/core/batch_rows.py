"""Which rows of an array count, and which of them are one batch.

A model sees an array of rows; some only fill it up, and it may hold several batches.
Only a layer that looks at other rows than its own, batch normalisation, needs to know.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pfljax.core.types import Array

_told: ContextVar[tuple[Array, int] | None] = ContextVar("rows", default=None)


@contextmanager
def batches(mask: Array, size: int) -> Iterator[None]:
    """Models applied within see batches of `size` rows, of which those of `mask` count.

    Args:
      mask: f32[N], 1 for a row that counts.
      size: rows of a batch; divides N.
    """
    token = _told.set((mask, size))
    try:
        yield
    finally:
        _told.reset(token)


def told() -> tuple[Array, int] | None:
    """(mask f32[N], rows of a batch), or None: all rows count and are one batch."""
    return _told.get()
