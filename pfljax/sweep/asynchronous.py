"""The events of asynchronous runs, which are computed on the host before they train."""

import jax
import numpy as np

from pfljax.core.types import Task
from pfljax.engine import asynchronous
from pfljax.engine.versions import Window
from pfljax.runs.settings import Experiment
from pfljax.simulate import components
from pfljax.simulate.shape import Shape
from pfljax.sweep.one_run import (
    Inputs,
    evaluations,
    make_setting,
    take_clients,
    take_runs,
)
from pfljax.sweep.pool import Data


def order_events(
    experiment: Experiment,
    shape: Shape,
    data: Data,
    inputs: Inputs,
    task: Task | None = None,
) -> tuple[Window, np.ndarray]:
    """The events of each run, leaves [R, T, ...], and virtual seconds f64[R, rounds].

    They depend on the seed and the clients, but on none of the traced numbers.
    """
    model = task or components.make_task(experiment, shape)
    setting = make_setting(experiment, shape, model, take_runs(inputs, 0))
    counts = np.diff([0, *evaluations(experiment)])
    rounds = asynchronous.compile_rounds(setting, int(counts.max()))
    windows = []
    seconds = []
    for seed, federation in zip(inputs.seed, inputs.federation, strict=True):
        key = jax.random.key(seed)
        train = take_clients(data, federation).train
        for done, count in zip(np.cumsum(counts) - counts, counts, strict=True):
            window, entries = rounds.window(key, train, int(done), int(count))
            windows.append(window)
            seconds.append(entries["seconds"])

    def by_run(*leaves: np.ndarray) -> np.ndarray:
        return np.stack(leaves).reshape(-1, len(counts), *leaves[0].shape)

    stacked = jax.tree.map(by_run, *windows)
    return stacked, np.concatenate(seconds).reshape(-1, experiment.rounds)
