"""Runs a sweep: makes its points, and trains those that are left."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from pfljax.core.requirements import require, require_a
from pfljax.core.types import Task
from pfljax.runs import folder
from pfljax.runs.result import Result, result
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices, errors
from pfljax.runtime.processes import say
from pfljax.runtime.words import count_noun
from pfljax.simulate import arguments, begin
from pfljax.simulate.begin import Run
from pfljax.simulate.run import opened, run
from pfljax.simulate.traced import without
from pfljax.sweep import points, results, together
from pfljax.sweep.points import Point
from pfljax.sweep.results import Sweep


def sweep(
    experiment: Experiment,
    over: Mapping[str, Sequence[Any]],
    *,
    out: str | Path | None = None,
    federation: Any = None,
    task: Task | None = None,
    lanes: int | None = None,
    quiet: bool = True,
) -> Sweep:
    """Runs every combination of the values, each in the folder out/POINT/sSEED.

    Each equals its own `run` to 1e-5, and other values of a number compile nothing. The
    same call resumes; a call with other values adds to the folder. Several processes
    may run the same call: each takes the runs that no other one is running. A run that
    fails is named at the end, and the next call tries it again.

    Args:
      experiment: the settings that are not swept.
      over: values by name, of settings and of the method's options. Each seed has the
        partition of a run with that seed.
      out: the folder; None is `experiment.out`, or a name made of the settings.
      federation: clients of your own, or a function of the seed that makes them.
      task: a model of your own, as in `run`.
      lanes: the number of runs that train under one vmap. By default 1 on a CPU, and
        elsewhere all that fit into memory.
      quiet: show no progress on stderr.

    Raises:
      ValueError: a name is unknown, or a value is wrong.
      FolderError: `out` holds something else.
    """
    arguments.check_experiment(experiment)
    devices.prepare()
    devices.check(experiment.devices)
    _check_call(over, out)
    path = Path(out or experiment.out or results.default_folder(experiment, over))
    asked = points.make(experiment, over, path, federation, task)
    results.claim(path, experiment, _list_values(asked, over))
    work = Work(tuple(over), task, quiet, _choose_lanes(lanes))
    with errors.without_tracebacks():
        _run_all(asked, work)
        # What another process has left since may be taken up now.
        busy, work.busy = work.busy, []
        _run_all(busy, work)
    _report_left(work)
    finished = [point for point in asked if point.experiment.folder in work.done]
    return Sweep(
        folder=path,
        experiment=experiment,
        over=_list_values(asked, over),
        values=[point.values for point in finished],
        results=[work.done[point.experiment.folder] for point in finished],
        failed=work.failed,
        elsewhere=[point.experiment.folder for point in work.busy],
    )


@dataclass
class Work:
    """How the runs train, and what has become of them, by folder."""

    traced: tuple[str, ...]  # the swept names
    task: Task | None
    quiet: bool
    lanes: int | None  # runs under one vmap; None for all that fit
    done: dict[str, Result] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # the reasons
    busy: list[Point] = field(default_factory=list)  # another process runs them

    @contextmanager
    def watching(self, point: Point) -> Iterator[None]:
        """Notes an error in the run of a point; the others go on."""
        try:
            yield
        except folder.BusyError:
            self.busy.append(point)
        except Exception as error:
            if errors.shows_traceback():
                raise
            self.failed[point.experiment.folder] = _reason(error)


def _run_all(asked: Iterable[Point], work: Work) -> None:
    """Runs these points, those of a program one after another."""
    for kind in _by_program(asked, work.traced):
        lanes = work.lanes
        left = kind
        while left:
            taken, lanes = _run_some(left, lanes or -len(kind), work)
            left = left[taken:]


def _run_some(left: Sequence[Point], lanes: int, work: Work) -> tuple[int, int]:
    """Runs the first points, as many as train together; returns (their number, lanes).

    A negative number of lanes is a wish, as far as memory allows.
    """
    if lanes != 1:
        return _run_together(left, lanes, work)
    point = left[0]
    options = {"quiet": work.quiet, "report": False, "traced": work.traced}
    with work.watching(point):
        finished = run(point.experiment, point.federation, task=work.task, **options)
        work.done[point.experiment.folder] = finished
    return 1, lanes


def _run_together(left: Sequence[Point], lanes: int, work: Work) -> tuple[int, int]:
    """Trains the first points under one vmap; returns what `_run_some` does."""
    runs: dict[str, Run] = {}
    taken = 0
    with ExitStack() as stack:
        while taken < len(left) and len(runs) < abs(lanes):
            point = left[taken]
            taken += 1
            with work.watching(point):
                prepared = stack.enter_context(_opened(point, work))
                if prepared is None:
                    continue
                first = next(iter(runs.values()), prepared)
                runs[point.experiment.folder] = together.share_pool(prepared, first)
                if not together.can_join(prepared):
                    lanes = 1
                elif lanes < 0:
                    lanes = min(-lanes, together.count_fitting(prepared))
        names = list(runs)
        failed = together.train_together([*runs.values()], lanes, work.quiet)
    broken = {names[index] for index in failed}
    for point in left[:taken]:
        where = point.experiment.folder
        if where in broken:
            # An error of one fails all of a call; the others can run alone.
            _run_some([point], 1, work)
        elif where not in work.failed and point not in work.busy:
            work.done[where] = result(where)
    return taken, lanes


def _opened(point: Point, work: Work) -> AbstractContextManager[Run | None]:
    """The run of a point on one device, with its folder locked."""
    alone = point.experiment.replace(devices=1)
    resolved = begin.validate(alone, point.federation, work.task)
    return opened(resolved, point.federation, work.task, work.quiet, work.traced)


def _choose_lanes(wanted: int | None) -> int | None:
    """The runs under one vmap: on a CPU 1, as a vmap gains no time there."""
    if wanted is not None:
        require_a("lanes", wanted, int, "a whole number, at least 1, or None")
        require("lanes", wanted, wanted >= 1, "at least 1")
        return wanted
    return 1 if jax.default_backend() == "cpu" else None


def _reason(error: Exception) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines() or [""]
    # XLA's message of a callback ends with the user's error.
    reason = lines[-1 if "Traceback" in lines[0] else 0]
    known = isinstance(error, errors.KINDS)
    return reason if known else f"{type(error).__name__}: {reason}"


def _report_left(work: Work) -> None:
    """Says which runs have failed, and how many other processes are running."""
    for where, reason in work.failed.items():
        say(f"pfljax: {where} failed: {reason}")
    if work.failed:
        runs = count_noun(len(work.failed), "run")
        say(f"pfljax: {runs} failed; the same command tries again")
    if work.busy:
        runs = count_noun(len(work.busy), "run")
        say(f"pfljax: {runs} left to other processes, which are running them")


def _by_program(asked: Iterable[Point], names: tuple[str, ...]) -> list[list[Point]]:
    """The points by the program that trains them: only few programs are kept."""
    kinds: dict[Experiment, list[Point]] = {}
    for point in asked:
        alike = point.experiment.replace(seed=0, out=None, label=None)
        kinds.setdefault(without(alike, names), []).append(point)
    return list(kinds.values())


def _list_values(asked: Sequence[Point], over: Iterable[str]) -> dict[str, list[Any]]:
    """The distinct values of each name, converted to Python's own types."""
    return {
        name: list(dict.fromkeys(point.values[name] for point in asked))
        for name in over
    }


def _check_call(over: Any, out: str | Path | None) -> None:
    if jax.process_count() > 1:
        raise ValueError("a sweep runs in one process, with all devices of one machine")
    if out is not None:
        arguments.check_path("out", out, "a folder, such as 'runs/sweep', or None")
    if over == {}:
        expected = 'values by name, such as {"lr": [0.1, 0.2]}'
        raise ValueError(f"over is empty; expected {expected}")
    points.combine(over)  # checks it
