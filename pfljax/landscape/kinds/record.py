"""What all kinds of landscapes of a run share: their record, rows and positions."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pfljax.core import statistics
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import ClientData
from pfljax.landscape.finished import Finished, find_clients
from pfljax.landscape.planes import pooled
from pfljax.report.frames import Frame
from pfljax.report.style import Figure
from pfljax.runs.landscape_options import ROWS, LandscapeOptions

METRICS = ("loss", "accuracy")  # those that tables and texts show
RHO = 0.05  # radius of the ball of SAM


class Landscape(NamedTuple):
    """A landscape of a run."""

    arrays: dict[str, np.ndarray]
    table: Frame
    figures: dict[str, Figure]  # by the suffix of the file's name
    text: str  # to print
    facts: str = ""  # points and examples, for the captions


class Rows(NamedTuple):
    """Examples on which models are evaluated."""

    data: ClientData
    train: ClientData  # training examples of the same clients, for running statistics


def find_finite(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Where the values of all columns [n] are finite, bool[n]."""
    return np.all([np.isfinite(values) for values in columns.values()], axis=0)


def place_points(options: LandscapeOptions, *always: float) -> np.ndarray:
    """The positions of an axis, f32[T]: even ones, and those that are `always` there.

    Raises:
      ValueError: there are fewer than 3 points, or the range does not ascend.
    """
    low, high = options.range or (-1, 1)
    points = options.points or 0
    if not points >= 3:
        raise ValueError(f"points is {points}; expected 3 or more")
    if not low < high:
        raise ValueError(f"range is {low} to {high}; expected ascending numbers")
    # Rounded, so that no point lies beside one of these.
    even = np.linspace(low, high, points).round(6)
    return np.union1d(even, always).astype(np.float32)


def place_on_line(options: LandscapeOptions) -> np.ndarray:
    """The positions on a line, f32[T]: even ones from 0 to 1, and others beyond them.

    What a range adds lies beyond, and so it changes no barrier.

    Raises:
      ValueError: as in `place_points`, or the range lacks an end of the line.
    """
    low, high = options.range or (0, 1)
    if not low <= 0 < 1 <= high:
        raise ValueError(
            f"range is {low} to {high}; expected one with both ends of a line, 0 and 1"
        )
    even = place_points(options.replace(range=(low, high)))
    within = place_points(options.replace(range=(0, 1)), 0.5)
    return np.union1d(within, even[(even < 0) | (even > 1)])


def describe_line(t: np.ndarray) -> str:
    """The number of points on a line, in words."""
    within = ((t >= 0) & (t <= 1)).sum()
    words = f"{within} points from 0 to 1"
    if within < len(t):
        words += f" and {len(t) - within} beyond, from {t[0]:g} to {t[-1]:g}"
    return words


def choose_rows(run: Finished, rows: str | None) -> Callable[[Finished], Rows]:
    """A function of some of the run's clients -> the examples for their models."""
    if rows == "all":
        everybody = Rows(pooled(run.federation.test), pooled(run.federation.train))
        return lambda part: everybody
    if rows == "train":
        return lambda part: Rows(part.federation.train, part.federation.train)
    return lambda part: Rows(part.federation.test, part.federation.train)


def pool_rows(run: Finished, options: LandscapeOptions) -> Rows:
    """The examples for one model; "own" are those of the clients in `through`.

    Raises:
      ValueError: `through` names no client, and "own" is asked for.
    """
    if options.rows == "own":
        ids = find_clients(options.through, len(run.ids))
        if not ids:
            raise ValueError(
                "rows is 'own', which are the examples of the clients that through "
                "names; name some, or choose all or train"
            )
        run = run.take(np.unique(ids))
    train = pooled(run.federation.train)
    data = train if options.rows == "train" else pooled(run.federation.test)
    return Rows(data, train)


def describe_rows(run: Finished, options: LandscapeOptions) -> str:
    """The examples and the running statistics, in words."""
    words = f"on {ROWS[options.rows or 'own']}"
    running = statistics.has_any(shapes_of_model(run.task))
    if running and options.statistics == "mix":
        words += ", with running statistics mixed like parameters"
    elif running:
        words += ", with running statistics computed anew on training examples"
    elif options.statistics == "repair":
        words += ", with hidden units repaired on training examples"
    return words
