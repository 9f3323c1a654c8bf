"""The result of a run of a sweep, from its point and from what its program gave."""

from typing import Any

import jax
import numpy as np

from pfljax.simulate import channels, malicious
from pfljax.sweep import pool
from pfljax.sweep.one_run import Outcome, evaluations
from pfljax.sweep.points import Point
from pfljax.sweep.results import Result


def result_of(
    point: Point, outcome: Outcome, data: pool.Data, federation: int
) -> Result:
    """The result of the run at `point`; its clients are a `federation` of `data`."""
    rounds = np.asarray(evaluations(point.experiment))
    return Result(
        values=point.values,
        round=rounds,
        train_loss=outcome.loss,
        metrics=outcome.metrics,
        path=outcome.path,
        size=_sizes(data, federation),
        quantities=outcome.quantities,
        clock=_clock(outcome.seconds, rounds),
        malicious=_malicious(point),
    )


def _sizes(data: pool.Data, federation: int) -> dict[str, np.ndarray]:
    """Rows of each client i32[C], by split."""
    sizes = {}
    for split, rows in data.judged.items():
        _, size = rows.spans
        sizes[split] = size[federation]
    return sizes


def _clock(seconds: Any, rounds: np.ndarray) -> np.ndarray | None:
    """Virtual seconds up to each of the rounds, f64[T]; None without a clock."""
    if seconds is None:
        return None
    # One after another in float64, as the log of a run adds them.
    clock = np.cumsum(seconds, dtype=np.float64)
    return clock[rounds - 1]


def _malicious(point: Point) -> np.ndarray | None:
    """Whether each client is malicious, bool[C]; None where all are benign."""
    federation = point.federation
    through = channels.make_channel(point.experiment, federation.num_clients)
    return malicious.which(through, federation, jax.random.key(point.experiment.seed))
