"""`sweep`: makes the points, runs what is left of them, and writes as it goes."""

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pfljax.core.types import Task
from pfljax.runs import folder
from pfljax.runs.settings import Experiment, flat
from pfljax.runtime import devices
from pfljax.sweep import points, pool, program, results
from pfljax.sweep.groups import Group, grouped
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
    """Every combination of the values as a run of its own; equal to it to 1e-5.

    Judged are personal and server models on test and validation rows and, after the
    last round, the path between a method's endpoints.

    Args:
      experiment: all that is not swept.
      over: values by name: of settings, and of the method's options. A seed has the
        partition that a run of that seed has.
      out: a folder that keeps every finished run: the same call goes on from there, and
        one with other values adds to it. Its sweep.csv is one tidy table of them all,
        to which every run is added as it finishes.
      federation: clients of your own, or a function of the seed that makes them.
      task: a model of your own; its programs are compiled at every call. In `out` runs
        know it by the experiment's `model`: give each task a name of its own.
      at_once: most runs in one call, at least one a device; None is what fits, and on a
        CPU one a device.
      lanes: runs of a device under one vmap; None is 1 on a CPU, else all.
      quiet: no progress on stderr.

    Raises:
      ValueError: a name is unknown, or a value is wrong.
      FolderError: `out` holds something else.
      MemoryError: not even one run fits.
    """
    devices.prepare()
    _check_call(at_once, lanes)
    found = points.make(experiment, over, federation, task)
    names = {name: list(dict.fromkeys(p.values[name] for p in found)) for name in over}
    with _holding(out) as path:
        done = _finished(path, found)
        tell = _teller(len(found), len(done), quiet)
        left = [point for point in found if point.digest not in done]
        groups = grouped(left, task)
        known = results.claim(path, experiment, names) if path else names

        def tabulate() -> None:
            whole = names == known
            every = found if whole else points.make(experiment, known, federation, task)
            _tabulate(path, experiment, known, every)

        tabulate()
        for group in groups:
            count = devices.choose(experiment.machine.devices, len(group.points))
            for point, result in _run(group, task, count, at_once, lanes):
                done[point.digest] = result
                if path:
                    results.write(_file(path, point), result)
                    results.add_to_table(path / "sweep.csv", known, result)
                tell(len(done))
        if left:
            tabulate()  # in the order of the points
    return Sweep(experiment, names, [done[point.digest] for point in found])


def _check_call(at_once: int | None, lanes: int | None) -> None:
    for name, value in {"at_once": at_once, "lanes": lanes}.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; expected at least 1")
    if jax.process_count() > 1:
        raise ValueError("a sweep runs in one process, with all devices of one machine")


@contextlib.contextmanager
def _holding(out: str | Path | None) -> Iterator[Path | None]:
    """The folder of the sweep, this process's alone."""
    if out is None:
        yield None
        return
    with folder.locked(Path(out), "sweep"):
        yield Path(out)


def _file(path: Path, point: Point) -> Path:
    return path / "runs" / f"{point.digest}.npz"


def _finished(path: Path | None, found: list[Point]) -> dict[str, Result]:
    """The results that are there, by digest."""
    return {
        point.digest: results.read(_file(path, point), point.values)
        for point in found
        if path and _file(path, point).exists()
    }


def _tabulate(
    path: Path | None, experiment: Experiment, over: dict[str, list], found: list[Point]
) -> None:
    """Writes sweep.csv of the runs that are finished, in the order of the points."""
    if path is None:
        return
    whole = list(_finished(path, found).values())
    table = path / "sweep.csv"
    if whole:
        results.write_table(table, Sweep(experiment, over, whole))
    else:
        table.unlink(missing_ok=True)


def _teller(total: int, before: int, quiet: bool) -> Any:
    """A function of the count of finished runs that tells of it on stderr."""
    start = time.monotonic()

    def tell(done: int) -> None:
        if quiet:
            return
        left = (time.monotonic() - start) * (total - done) / (done - before)
        told = f"{done} of {total} runs, {left:.0f} s left"
        print(told, file=sys.stderr, flush=True)

    return tell


def _run(
    group: Group,
    task: Task | None,
    num_devices: int,
    at_once: int | None,
    lanes: int | None,
) -> Iterator[tuple[Point, Result]]:
    """The points of one program with their results, as slices finish."""
    e, members = group.experiment, group.points
    distinct = list({id(p.federation): p.federation for p in members}.values())
    data = pool.stack(distinct)
    places = [[id(f) for f in distinct].index(id(p.federation)) for p in members]
    count, inputs = min(num_devices, len(members)), _inputs(group, places)
    at = np.asarray(program.evaluations(e))
    for which, found in program.run_all(
        e, group.shape, data, inputs, count, at_once, lanes, task
    ):
        for place, i in enumerate(which):
            one = jax.tree.map(lambda leaf, at=place: leaf[at], found)
            size = {name: r.own[1][places[i]] for name, r in data.judged.items()}
            values = members[i].values
            result = Result(values, at, one.loss, one.metrics, one.path, size)
            yield members[i], result


def _inputs(group: Group, places: list[int]) -> program.Inputs:
    """In what the points differ, as arrays over them."""
    own = [point.experiment for point in group.points]
    options = [dict(e.method.hyper) for e in own]
    cohort = np.array([e.participation.cohort for e in own], np.int32)
    return program.Inputs(
        np.array([e.seed for e in own], np.int32),
        np.array(places, np.int32),
        cohort if len(set(cohort.tolist())) > 1 else None,
        {
            name: np.array([flat(e)[name] for e in own], np.float32)
            for name in group.traced.settings
        },
        {
            name: np.array([of[name] for of in options], np.float32)
            for name in group.traced.options
        },
    )
