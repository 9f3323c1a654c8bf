"""Figures of a line: its barrier, height, mean, midpoint and flat range.

They are of the points from t = 0 to 1, in float64, one figure for each line of a
`Line`: f64[], f64[C], or f64[K, K] of `pairs`.
"""

import numpy as np

from pfljax.evaluation.over_clients import GREATER_IS_BETTER
from pfljax.landscape.lines import Line


def barrier(line: Line, metric: str = "loss") -> np.ndarray:
    """The largest excess over the straight line between the ends' values, f64[...].

    max over t in [0, 1] of phi(t) - ((1 - t) phi(0) + t phi(1)); of an accuracy, the
    largest drop below it. The ends count, so it is never negative, and 0 says that the
    ends are connected. Entezari et al., ICLR 2022, https://arxiv.org/abs/2110.06296.

    Raises:
      ValueError: the metric is unknown, or the line lacks t = 0 or 1; so do the
        functions below.
    """
    t, error = _errors(line, metric)
    # The metrics of a diverged model are NaN, and so is its barrier: no warning.
    with np.errstate(invalid="ignore"):
        first = error[..., :1]
        last = error[..., -1:]
        straight = (1 - t) * first + t * last
        return (error - straight).max(-1)


def height(line: Line, metric: str = "loss") -> np.ndarray:
    """How much worse the worst point in [0, 1] is than the mean of the ends, f64[...].

    Frankle et al., ICML 2020, https://arxiv.org/abs/1912.05671 (their instability).
    """
    _, error = _errors(line, metric)
    with np.errstate(invalid="ignore"):
        mean_of_ends = (error[..., 0] + error[..., -1]) / 2
        return error.max(-1) - mean_of_ends


def arc_mean(line: Line, metric: str = "loss") -> np.ndarray:
    """Mean over [0, 1] weighted by arc length, by the trapezoid rule, f64[...].

    On a straight line the arc length is t times the distance; a `curve` has its own.
    Garipov et al., NeurIPS 2018, https://arxiv.org/abs/1802.10026.
    """
    t, value = _within(line, metric)
    if line.arc is None:
        return np.trapezoid(value, t, axis=-1)
    arc = line.arc[..., _inside(line)]
    start = arc[..., :1]
    length = arc[..., -1:] - start
    # A curve of one point has no length: t is as good a weight as any.
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(length == 0, t, (arc - start) / length)
    return np.trapezoid(value, share, axis=-1)


def midpoint(line: Line, metric: str = "accuracy") -> np.ndarray:
    """The value at t = 1/2, f64[...].

    Raises:
      ValueError: the line has no such point.
    """
    t, value = _within(line, metric)
    middle = np.flatnonzero(t == 0.5)
    if not len(middle):
        raise ValueError(f"the line has no point t = 0.5, but {t.tolist()}; judge it")
    return value[..., middle[0]]


def flat_range(
    line: Line,
    metric: str = "accuracy",
    tolerance: float = 0.01,
) -> np.ndarray:
    """Length of {t in [0, 1]: at most `tolerance` worse than the best point}, f64[...].

    The metric is taken as linear between neighbouring points; tolerance is in its unit.
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


def _inside(line: Line) -> np.ndarray:
    """Which points lie from t = 0 to 1, bool[T]."""
    return (line.t >= 0) & (line.t <= 1)


def _within(line: Line, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """(t f64[T], the metric f64[..., T]) of the points from t = 0 to 1."""
    if metric not in line.metrics:
        known = ", ".join(line.metrics)
        raise ValueError(f"metric {metric!r} is unknown; known: {known}")
    inside = _inside(line)
    t = line.t[inside].astype(np.float64)
    if not len(t) or t[0] != 0 or t[-1] != 1:
        raise ValueError(
            f"the line has the points {line.t.tolist()}, expected t = 0 and t = 1 "
            "among them; judge both ends"
        )
    values = np.asarray(line.metrics[metric], np.float64)
    return t, values[..., inside]


def _errors(line: Line, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """`_within`, negated where greater is better: less is better."""
    t, value = _within(line, metric)
    error = -value if metric in GREATER_IS_BETTER else value
    return t, error
