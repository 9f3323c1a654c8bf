"""Runs a sweep: makes its points, trains those that are left, and writes results."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pfljax.core.requirements import require, require_a
from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.runs import folder
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices, signals
from pfljax.runtime.terminal import show
from pfljax.simulate import arguments, channels, malicious
from pfljax.sweep import asynchronous, points, pool, program, results, run_files
from pfljax.sweep.groups import Group, group_points
from pfljax.sweep.one_run import Inputs, Outcome, evaluations
from pfljax.sweep.points import Point
from pfljax.sweep.results import Result, Sweep


def sweep(
    experiment: Experiment,
    over: Mapping[str, Sequence[Any]],
    *,
    out: str | Path | None = None,
    federation: Any = None,
    task: Task | None = None,
    at_once: int | None = None,
    lanes: int | None = None,
    quiet: bool = True,
) -> Sweep:
    """Runs every combination of the values; each equals its own `run` to 1e-5.

    The personal and the server's models are evaluated on test and validation examples,
    and after the last round also the path between the endpoints of a method.

    Args:
      experiment: the settings that are not swept.
      over: values by name, of settings and of the method's options. Each seed has the
        partition of a run with that seed.
      out: a folder that keeps every finished run. The same call resumes from there, and
        a call with other values adds to it. Its sweep.csv is one tidy table of all
        runs, to which each run is added as it finishes.
      federation: clients of your own, or a function of the seed that makes them.
      task: a model of your own; its programs are compiled in every call. The runs in
        `out` know it by the experiment's `model`, so give each task its own name.
      at_once: the most runs in one call, at least one on each device. By default as
        many as fit into memory, and on a CPU one on each device.
      lanes: the number of runs of a device under one vmap. By default 1 on a CPU, and
        elsewhere all. Runs with asynchronous rounds train one after another.
      quiet: show no progress on stderr.

    Raises:
      ValueError: a name is unknown, or a value is wrong.
      FolderError: `out` holds something else.
      MemoryError: not even one run fits into memory.
    """
    arguments.check_experiment(experiment)
    devices.prepare()
    devices.check(experiment.devices)
    _check_call(over, at_once, lanes, out)
    asked = points.make(experiment, over, federation, task)
    names = _list_values(asked, over)
    path = Path(out) if out is not None else None
    with contextlib.ExitStack() as stack:
        if path is not None:
            stack.enter_context(folder.lock(path, "sweep"))
            # What is trained is kept first.
            stack.enter_context(signals.deferred())
        done = _read_finished(path, asked)
        report = _reporter(len(asked), len(done), quiet)
        left = [point for point in asked if point.digest not in done]
        # Before anything is written: a method may refuse its options.
        groups = group_points(left, task)
        all_values = results.claim(path, experiment, names) if path else names
        every = asked
        if all_values != names:
            every = points.make(experiment, all_values, federation, task)
        _tabulate(path, all_values, every)
        for group in groups:
            if signals.terminated():
                break
            for point, result in _run(group, task, at_once, lanes):
                done[point.digest] = result
                _keep(path, all_values, point, result)
                report(len(done))
        if left:
            # Rows were added as runs finished, and are now put in the order of points.
            _tabulate(path, all_values, every)
    finished = [done[point.digest] for point in asked]
    return Sweep(experiment=experiment, over=names, results=finished)


def _list_values(asked: Sequence[Point], over: Iterable[str]) -> dict[str, list[Any]]:
    """The distinct values of each name, converted to Python's own types."""
    return {
        name: list(dict.fromkeys(point.values[name] for point in asked))
        for name in over
    }


def _check_call(
    over: Any, at_once: int | None, lanes: int | None, out: str | Path | None
) -> None:
    for name, value in {"at_once": at_once, "lanes": lanes}.items():
        if value is not None:
            require_a(name, value, int, "a whole number, at least 1, or None")
            require(name, value, value >= 1, "at least 1")
    if jax.process_count() > 1:
        raise ValueError("a sweep runs in one process, with all devices of one machine")
    if out is not None:
        arguments.check_path("out", out, "a folder, such as 'runs/sweep', or None")
    if over == {}:
        expected = 'values by name, such as {"lr": [0.1, 0.2]}'
        raise ValueError(f"over is empty; expected {expected}")


def _file(path: Path, point: Point) -> Path:
    return path / "runs" / f"{point.digest}.npz"


def _keep(
    path: Path | None, over: dict[str, list], point: Point, result: Result
) -> None:
    """Adds a finished run to the folder: its file, and its rows of sweep.csv."""
    if path is None:
        return
    # The file comes first: the table can be written again from the files.
    run_files.write(_file(path, point), result)
    results.add_to_table(path / "sweep.csv", over, result)


def _read_finished(path: Path | None, asked: list[Point]) -> dict[str, Result]:
    """The results in the folder, by digest."""
    finished = {}
    if path is None:
        return finished
    for point in asked:
        file = _file(path, point)
        if file.exists():
            finished[point.digest] = run_files.read(file, point.values)
    return finished


def _tabulate(path: Path | None, over: dict[str, list], every: list[Point]) -> None:
    """Writes sweep.csv of the runs that are finished, in the order of the points."""
    finished = _read_finished(path, every)
    if path and finished:
        results.write_table(path / "sweep.csv", over, list(finished.values()))
    elif path:
        # The table of another sweep would be taken for this one's.
        (path / "sweep.csv").unlink(missing_ok=True)


def _reporter(total: int, before: int, quiet: bool) -> Callable[[int], None]:
    """A function that reports the number of finished runs on stderr."""
    started = time.monotonic()

    def report(done: int) -> None:
        if quiet:
            return
        seconds = time.monotonic() - started
        seconds_a_run = seconds / (done - before)
        left = seconds_a_run * (total - done)
        show(f"{done} of {total} runs, {left:.0f} s left", sys.stderr)

    return report


def _run(
    group: Group,
    task: Task | None,
    at_once: int | None,
    lanes: int | None,
) -> Iterator[tuple[Point, Result]]:
    """Yields the points of one program with their results, as they finish."""
    members = group.points
    distinct, federations = _distinct_federations(members)
    data = pool.stack(distinct, group.experiment.ood_examples)
    inputs = _inputs(group, federations)
    seconds = None
    if group.experiment.mode.name != "sync":
        events, seconds = asynchronous.order_events(
            group.experiment, group.shape, data, inputs, task
        )
        inputs = inputs._replace(events=events)
        # Under one vmap, runs would wait for the longest of each version.
        at_once = lanes = 1
    count = devices.choose(members[0].experiment.devices, len(members))
    outcomes = program.run_all(
        experiment=group.experiment,
        shape=group.shape,
        data=data,
        inputs=inputs,
        num_devices=min(count, len(members)),
        at_once=at_once,
        lanes=lanes,
        task=task,
    )
    for run, outcome in outcomes:
        if seconds is not None:
            outcome = outcome._replace(seconds=seconds[run])
        point = members[run]
        yield point, _result(point, outcome, data, federations[run])


def _result(point: Point, outcome: Outcome, data: pool.Data, federation: int) -> Result:
    """The result of the run at `point`, whose clients are number `federation`."""
    rounds = np.asarray(evaluations(point.experiment))
    clock = None
    if outcome.seconds is not None:
        # A sum in float64, as in the log of a run.
        clock = np.cumsum(outcome.seconds, dtype=np.float64)[rounds - 1]
    num_clients = point.federation.num_clients
    channel = channels.make_channel(point.experiment, num_clients)
    key = jax.random.key(point.experiment.seed)
    return Result(
        values=point.values,
        round=rounds,
        train_loss=outcome.loss,
        metrics=outcome.metrics,
        path=outcome.path,
        size={name: each.spans[1][federation] for name, each in data.splits.items()},
        quantities=outcome.quantities,
        clock=clock,
        malicious=malicious.which(channel, point.federation, key),
    )


def _distinct_federations(
    members: Sequence[Point],
) -> tuple[list[Federation], list[int]]:
    """(the distinct federations, the index of each point's federation)."""
    distinct: list[Federation] = []
    index_of: dict[int, int] = {}
    federations = []
    for point in members:
        # By identity: comparing their examples would take longer than the runs.
        identity = id(point.federation)
        if identity not in index_of:
            index_of[identity] = len(distinct)
            distinct.append(point.federation)
        federations.append(index_of[identity])
    return distinct, federations


def _inputs(group: Group, federations: list[int]) -> Inputs:
    """The values in which the points differ, as arrays over the points."""
    settings = [vars(point.experiment) for point in group.points]
    options = [point.experiment.algorithm.options for point in group.points]
    cohorts = _column(settings, "cohort", np.int32)
    one_cohort = len(np.unique(cohorts)) == 1
    return Inputs(
        seed=_column(settings, "seed", np.int32),
        federation=np.array(federations, np.int32),
        # If all have the same cohort, it is not traced, and no client is masked.
        cohort=None if one_cohort else cohorts,
        settings=_columns(settings, group.traced.settings),
        hyper=_columns(options, group.traced.options),
    )


def _columns(
    records: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, np.ndarray]:
    """An array f32[R] of each name."""
    return {name: _column(records, name, np.float32) for name in names}


def _column(records: Sequence[Mapping[str, Any]], name: str, dtype: Any) -> np.ndarray:
    """An array [R] of one value of every record."""
    return np.array([record[name] for record in records], dtype)
