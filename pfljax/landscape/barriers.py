"""Numbers that describe a line: its barrier, midpoint and flat range.

They use the points from t = 0 to 1 in float64, and have the shape of the lines: f64[],
f64[C], or f64[K, K] for `pairs`.
"""

import numpy as np

from pfljax.evaluation.over_clients import is_greater_better
from pfljax.landscape.lines import Line


def barrier(line: Line, metric: str = "loss") -> np.ndarray:
    """The largest excess over the straight line between the ends' values, f64[...].

    max over t in [0, 1] of phi(t) - ((1 - t) phi(0) + t phi(1)); for an accuracy, the
    largest drop below that line. It is never negative, because the ends are included,
    and 0 means that the ends are connected. Entezari et al., ICLR 2022,
    https://arxiv.org/abs/2110.06296.

    Raises:
      ValueError: the metric is unknown, or the line lacks t = 0 or 1. The functions
        below raise the same errors.
    """
    t, error = _errors(line, metric)
    # The metrics of a diverged model are NaN, and so is its barrier: no warning.
    with np.errstate(invalid="ignore"):
        first = error[..., :1]
        last = error[..., -1:]
        straight = (1 - t) * first + t * last
        return (error - straight).max(-1)


def midpoint(line: Line, metric: str = "accuracy") -> np.ndarray:
    """The value at t = 1/2, f64[...].

    Raises:
      ValueError: the line has no such point.
    """
    t, value = _within(line, metric)
    middle = np.flatnonzero(t == 0.5)
    if not len(middle):
        raise ValueError(
            f"the line has the points {t.tolist()}; expected t = 0.5 among them"
        )
    return value[..., middle[0]]


def flat_range(
    line: Line,
    metric: str = "accuracy",
    tolerance: float = 0.01,
) -> np.ndarray:
    """Length of {t in [0, 1]: at most `tolerance` worse than the best point}, f64[...].

    The metric is interpolated linearly between neighbouring points, and the tolerance
    has its unit.
    """
    t, error = _errors(line, metric)
    with np.errstate(invalid="ignore"):
        margin = error.min(-1, keepdims=True) + tolerance - error
    left = margin[..., :-1]
    right = margin[..., 1:]
    # A segment is flat where its linear margin is positive: from 0 to all of it.
    positive = np.maximum(left, 0) + np.maximum(right, 0)
    total = np.abs(left) + np.abs(right)
    # Both ends on the threshold: the whole segment is flat, and 0 / 0 is avoided.
    on_threshold = total == 0
    divisor = np.where(on_threshold, 1.0, total)
    share = np.where(on_threshold, 1.0, positive / divisor)
    return (share * np.diff(t)).sum(-1)


def _within(line: Line, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """(t f64[T], the metric f64[..., T]) of the points from t = 0 to 1."""
    if metric not in line.metrics:
        known = ", ".join(line.metrics)
        raise ValueError(f"metric {metric!r} is unknown; known: {known}")
    inside = (line.t >= 0) & (line.t <= 1)
    t = line.t[inside].astype(np.float64)
    if not len(t) or t[0] != 0 or t[-1] != 1:
        raise ValueError(
            f"the line has the points {line.t.tolist()}; expected t = 0 and t = 1 "
            "among them"
        )
    values = np.asarray(line.metrics[metric], np.float64)
    return t, values[..., inside]


def _errors(line: Line, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """`_within`, negated where greater is better, so that less is better."""
    t, value = _within(line, metric)
    error = -value if is_greater_better(metric) else value
    return t, error
