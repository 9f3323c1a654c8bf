"""Decides whether a run stops after an evaluation: by a callback or by patience."""

import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np

from pfljax.core.types import RunState
from pfljax.runs.early_stopping import CALLBACK, by_patience, holds, stop
from pfljax.runs.log import Line
from pfljax.runs.result import read_line
from pfljax.runtime.processes import ask, everywhere
from pfljax.simulate import evaluation, results
from pfljax.simulate.begin import Run


def after(run: Run, state: RunState, line: Line) -> dict[str, Any] | None:
    """The reason for summary.json if the run stops after this evaluation, else None.

    It is None after the last round.
    """
    if run.callback is not None:
        arguments = line["round"], read_line(line), state
        # Every process calls its own callback; process 0 decides for all.
        wanted = ask(bool, everywhere(_answer, run.callback, arguments))
        if wanted and line["round"] < run.experiment.rounds:
            return stop(run.experiment, line["round"], CALLBACK)
    return check_patience(run, state, line["round"])


def _answer(callback: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
    """Whether the callback stops the run; None does not.

    Raises:
      ValueError: it returned something else, such as a metric.
    """
    said = callback(*arguments)
    if said is None:
        return False
    if np.shape(said) == () and np.asarray(said).dtype == bool:
        return bool(said)
    raise ValueError(
        f"the callback returned {reprlib.repr(said)}; expected True to stop the run, "
        "and False or None to go on"
    )


def resume(run: Run, state: RunState, line: Line) -> dict[str, Any] | None:
    """The same as `after` for a run that is resumed, without calling the callback.

    A run that was killed before its summary was written may have stopped there.
    """
    if "evaluations" not in line:
        return None
    return line.get("stopped") or check_patience(run, state, line["round"])


def check_patience(run: Run, state: RunState, round_: int) -> dict[str, Any] | None:
    """The reason for summary.json if patience stops the run here, else None."""
    patience = run.experiment.patience
    if patience is None or round_ == run.experiment.rounds:
        return None
    arrays = results.arrays(run, state)
    goodness = evaluation.on_validation(arrays, run.experiment.monitor)
    if goodness is None:
        return None
    evaluations_since_best = len(goodness) - 1 - int(np.argmax(goodness))
    if evaluations_since_best < patience:
        return None
    return stop(run.experiment, round_, by_patience(run.experiment))


def drop_outdated(run: Run, lines: list[Line]) -> list[Line]:
    """The log without stops that no longer hold with these settings."""
    for line in lines:
        if "stopped" in line and not holds(line["stopped"], run.experiment):
            del line["stopped"]
    return lines
