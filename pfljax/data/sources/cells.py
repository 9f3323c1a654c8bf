"""Cells of tables as examples: numbers, images or lists."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from pfljax.data.sources.images import decode
from pfljax.data.values import to_32_bits


def examples(table: Any, size: int | None, rows: int) -> np.ndarray:
    """What models see of a chunk: its columns of numbers, or one of images or lists."""
    first = table.iloc[0]
    whole = [name for name in table if isinstance(first[name], dict | np.ndarray)]
    if whole and len(table.columns) > 1:
        others = ",".join(name for name in table if name != whole[0])
        raise ValueError(
            f"column {whole[0]!r} has images or lists, and models see no other column "
            f"beside it; leave the others out: skip=({others})"
        )
    if whole:
        cells = table[whole[0]].to_numpy()
        if isinstance(cells[0], dict):
            return decode(dict(_images(cells, rows)), size)
        x = np.stack([*map(_dense, cells)])
        if x.dtype == np.uint8:
            return x
        return to_32_bits("x", x, np.int32 if x.dtype.kind in "iu" else np.float32)
    for name in table.columns:
        if table[name].dtype.kind not in "iufb":
            raise ValueError(
                f"column {name!r} is not of numbers; encode it, or leave it out: "
                f"skip={name}"
            )
    are_bytes = all(dtype == np.uint8 for dtype in table.dtypes)
    return table.to_numpy(np.uint8 if are_bytes else np.float32)


def _images(cells: np.ndarray, rows: int) -> Iterator[tuple[str, Any]]:
    """Files of images, encoded in the cells or beside the table, by their rows."""
    for row, cell in enumerate(cells, rows):
        encoded = cell["bytes"]
        yield f"row {row}", cell["path"] if encoded is None else io.BytesIO(encoded)


def _dense(cell: np.ndarray) -> np.ndarray:
    """An array of lists of lists as one array."""
    return np.stack([*map(_dense, cell)]) if cell.dtype == object else cell
