"""The rows that the server holds in place of clients, their labels true."""

from typing import Any

import numpy as np

from pfljax.core.types import ClientData, Examples
from pfljax.data.arrays import Arrays


def set_aside(
    rows: np.ndarray, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """(rows for the clients, int(share * R) rows for the server), both ascending.

    Raises:
      ValueError: the share is above 0, and of no row.
    """
    count = int(share * len(rows))
    if share and not count:
        raise ValueError(
            f"public is {share}, which is no row of {len(rows)}; give at least "
            f"{1 / len(rows):.2g}, or 0 for a server without rows"
        )
    # A stream apart from those of partition, split and noise.
    drawn = np.random.default_rng([seed, 3]).permutation(rows)
    return np.sort(drawn[count:]), np.sort(drawn[:count])


def held_by_server(arrays: Arrays, rows: np.ndarray) -> ClientData | None:
    """The server's rows as a client's data; None for no rows."""
    if not len(rows):
        return None
    x: Any = arrays.x[rows]
    y: Any = arrays.y[rows]
    offset: Any = np.int32(0)
    size: Any = np.int32(len(rows))
    return ClientData(Examples(x, y), offset, size)


def settings(share: float, rows: np.ndarray) -> dict[str, Any]:
    """What the manifest says of the server's rows, if it has any."""
    return {"public": share, "public_rows": len(rows)} if len(rows) else {}
