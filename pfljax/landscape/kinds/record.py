"""The record of a landscape of a run, and what all kinds share."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pfljax.report.frames import Frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS = ("loss", "accuracy")  # those that tables and texts show
RHO = 0.05  # radius of the ball of SAM


class Landscape(NamedTuple):
    """A landscape of a run."""

    arrays: dict[str, np.ndarray]
    table: Frame
    figures: dict[str, "Figure"]  # by the suffix of the file's name
    text: str  # to print


def find_finite(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Where the values of all columns [n] are finite, bool[n]."""
    return np.all([np.isfinite(values) for values in columns.values()], axis=0)
