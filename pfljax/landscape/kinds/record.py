"""What a landscape of a run is made of, and what all kinds share."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS = ("loss", "accuracy")  # those that tables and texts speak of
RHO = 0.05  # radius of the ball of SAM


class Landscape(NamedTuple):
    """A landscape of a run."""

    arrays: dict[str, np.ndarray]
    rows: list[list[Any]]  # of a table, the first its head
    figures: dict[str, "Figure"]  # by the end of the file's name
    text: str  # to print


def finite_rows(columns: dict[str, np.ndarray]) -> np.ndarray:
    """The rows of a table whose numbers are all finite, bool[rows]."""
    return np.all([np.isfinite(values) for values in columns.values()], axis=0)
