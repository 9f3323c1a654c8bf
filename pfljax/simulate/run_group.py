"""Runs that differ in seed and folder alone, each in its folder, with their reports."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pfljax import registry
from pfljax.core.types import Task
from pfljax.data import Federation, check_federation
from pfljax.runs import baseline, checks, claims, folder
from pfljax.runs.provenance import of_run
from pfljax.runs.result import Result
from pfljax.runs.settings import Experiment
from pfljax.runtime.processes import ask, check_same, first, holding, say
from pfljax.simulate import at_once, loop, methods, simulation, width
from pfljax.simulate.begin import Callback, Run, begin
from pfljax.simulate.federation import build_federation

ASKED = ("round", "metrics", "state")  # what a callback is given


def run_at_once(
    experiments: Sequence[Experiment],
    federations: Sequence[Federation | None],
    task: Task | None = None,
    quiet: bool = False,
    report: bool = True,
    callback: Callback | None = None,
) -> list[Result]:
    """`run` of each of these experiments, side by side.

    Which of them are best run together, `at_once.groups` says.
    """
    if callback is not None:
        registry.require_call(
            "callback", callback, ASKED, f"a function of {', '.join(ASKED)}"
        )
    pairs = list(zip(experiments, federations, strict=True))
    experiments = [_checked(*pair, task) for pair in pairs]
    quiet = quiet or not first()
    paths = [Path(experiment.folder) for experiment in experiments]
    with ExitStack() as locks:
        for path in paths:
            locks.enter_context(holding(folder.locked(path)))
        left: dict[int, Callable[..., Run]] = {}
        for place, (_, federation) in enumerate(pairs):
            experiment, path = experiments[place], paths[place]
            ask(claims.claim, path, experiment)
            ask(claims.check_python, path, federation, task)
            if ask(folder.complete, path, experiment):
                _revisit(experiment, federation, path)
            else:
                left[place] = partial(
                    begin, experiment, federation, task, path, callback=callback
                )
        with methods.fitting(experiments[0].method.algorithm):
            _train(left, paths, quiet)
        if report:
            for path in paths:
                ask(_report, path)
    return [_result(path) for path in paths]


def _train(
    left: Mapping[int, Callable[..., Run]], paths: Sequence[Path], quiet: bool
) -> None:
    """All that is left of the runs of a group, each by its place in it."""
    places = len(paths)
    if left and places > 1 and at_once.agreed(paths):
        runs: dict[int, Run] = {}
        for place, begin_run in left.items():
            # What was chosen for one is so for all, and told once.
            runs[place] = begin_run(quiet or bool(runs), alone=False)
        several = at_once.prepare(runs, places)
        if several is not None:
            _go(runs, quiet, several)
            return
    for place, begin_run in left.items():
        _go({place: begin_run(quiet)}, quiet)


def _go(
    runs: Mapping[int, Run], quiet: bool, several: at_once.Several | None = None
) -> None:
    """The rounds of one run, or of `several`, by what their folders remember."""
    count = several.places if several else 1
    for begun in runs.values():
        if ask(width.at_once, begun.path) not in (None, count):
            say(
                f"pfljax: {begun.path} was begun at once with other seeds, or without "
                "these; from here on it is the same to rounding, not to the bit"
            )
        ask(width.remember, begun.path, begun.experiment, begun.sim, count)
    loop.run_rounds(runs, quiet, several)


def _checked(
    experiment: Experiment, federation: Federation | None, task: Task | None
) -> Experiment:
    """The experiment as it is run, its settings known to be right."""
    if federation is not None:
        check_federation(federation)
    asked = experiment
    experiment = simulation.truthful(experiment, federation, task)
    checks.check(
        experiment, own_model=task is not None, own_data=federation is not None
    )
    # By what was asked for: the caller knows the folder as `experiment.folder`.
    experiment = checks.resolve(experiment, asked.folder)
    check_same("settings", repr(experiment))
    return experiment


def _result(path: Path) -> Result:
    return Result(path, ask(folder.read_json, path / "summary.json"))


def _revisit(experiment: Experiment, federation: Federation | None, path: Path) -> None:
    """Holds a finished run to its files, the data that are given, and its baseline."""
    ask(folder.check_unchanged, path)
    if federation is not None:
        training, unseen = build_federation(experiment, federation)
        ask(claims.check_data, path, of_run(training, unseen, given=True))
    ask(baseline.recount, path, experiment)


def _report(path: Path) -> None:
    if not folder.drawn(path):
        from pfljax.report import write_run_report

        write_run_report(path)
