"""Checks the Python arguments of a run, a comparison or a sweep."""

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.core.requirements import require, require_a, require_call
from pfljax.core.types import Task
from pfljax.data import DATASETS, PARTITIONS, Federation, check_federation
from pfljax.runs.settings import DATA_SETTINGS, Experiment

AN_EXPERIMENT = 'an Experiment, such as Experiment("ditto", rounds=3)'
A_TASK = "a Task, such as models.task(module, input_shape) or models.task_from_nnx"
A_FOLDER = "the folder of a run, such as 'runs/x'"


def check_experiment(experiment: Any) -> None:
    """Raises a ValueError unless it is an Experiment."""
    require_a("experiment", experiment, Experiment, AN_EXPERIMENT)


def check_dealing(experiment: Experiment, federation: Federation) -> None:
    """Refuses settings of the data that contradict those of the federation.

    Settings at their defaults are not checked, nor is a federation without a manifest.

    Raises:
      ValueError: names the first such setting, and its value in the federation.
    """
    defaults = Experiment()
    for name in DATA_SETTINGS:
        value = getattr(experiment, name)
        theirs = federation.manifest.get(name)
        if value == getattr(defaults, name) or theirs is None or name == "clients":
            continue
        if not _is_theirs(name, value, federation.manifest):
            raise ValueError(
                f"{name} is {str(value)!r}, but the federation that is given was made "
                f"with {theirs!r}: it would not apply; leave it out"
            )


def _is_theirs(name: str, value: Any, manifest: Mapping[str, Any]) -> bool:
    """Whether the manifest has this value of a setting."""
    if name == "partition":
        # A name that is not registered describes a partition of the user's own.
        if value.name not in PARTITIONS:
            return True
        params = manifest.get("params", {})
        has_options = all(params.get(key) == option for key, option in value.args)
        return value.name == manifest[name] and has_options
    # The same holds for data sets.
    if name == "dataset":
        return value.name not in DATASETS or value.name == manifest[name]
    return (str(value) if name == "noise" else value) == manifest[name]


def check_task(task: Any) -> None:
    """Raises a ValueError unless it is a Task, or None."""
    if task is not None:
        require_a("task", task, Task, A_TASK)


def check_precision(precision: str, task: Task) -> None:
    """Raises a ValueError unless the task computes in this precision."""
    expected = (
        f"{task.precision!r}, that of the task; or make the task with "
        f"models.task(module, input_shape, precision={precision!r})"
    )
    require("precision", precision, task.precision == precision, expected)


def check_path(name: str, path: Any, expected: str = A_FOLDER) -> None:
    """Raises a ValueError unless it can be a path."""
    require_a(name, path, (str, Path), expected)


def list_experiments(values: Any) -> list[Experiment]:
    """The experiments of a comparison, at least one."""
    listed = _to_list("experiments", values, f"a list of them: [{AN_EXPERIMENT}]")
    for value in listed:
        require_a("one of the experiments", value, Experiment, AN_EXPERIMENT)
    return listed


def list_seeds(values: Any) -> list[int]:
    """The seeds of a comparison, at least one."""
    listed = _to_list("seeds", values, "a list of them, such as [0, 1, 2]")
    for value in listed:
        require_a("one of the seeds", value, (int, np.integer), "a whole number")
    listed = [int(value) for value in listed]
    # A repeated seed would count as two runs.
    require("seeds", listed, len(set(listed)) == len(listed), "each seed once")
    return listed


def _to_list(name: str, values: Any, expected: str) -> list[Any]:
    """The values of any iterable, such as a generator, as a list."""
    # A text would be split into its letters.
    if not isinstance(values, Iterable) or isinstance(values, str):
        require_a(name, values, (), expected)
    listed = list(values)
    if not listed:
        raise ValueError(f"{name} is empty; expected {expected}")
    return listed


def federation_by_seed(federation: Any) -> Callable[[int], Federation | None]:
    """The user's federation as a function of the seed, called once for each seed."""
    if federation is None:
        return lambda seed: None
    if not callable(federation):
        check_federation(federation)
        return lambda seed: federation
    expected = "a function of the seed that makes a Federation, or a Federation"
    require_call("federation", federation, ("seed",), expected)

    # Kept in memory: it may be large, and pools of examples are known by identity.
    @functools.cache
    def make(seed: int) -> Federation:
        dealt: Any = federation(seed)
        check_federation(dealt)
        return dealt

    return make
