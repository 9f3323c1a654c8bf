"""Runs an experiment from Python.

A run is a pure function of its config. If it is killed at any moment, the same call
continues from the last checkpoint and ends with the same bits.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pfljax.runs import claims, folder
from pfljax.runs.result import Result
from pfljax.runs.settings import Experiment

if TYPE_CHECKING:
    from pfljax.core.types import Task
    from pfljax.data import Federation
    from pfljax.simulate.begin import Callback, Run


def run(
    experiment: Experiment,
    federation: "Federation | None" = None,
    *,
    task: "Task | None" = None,
    quiet: bool = False,
    report: bool = True,
    callback: "Callback | None" = None,
    traced: Collection[str] = (),
) -> Result:
    """Runs the experiment in its folder, or what is left of it; returns its result.

    `result.personal.test.accuracy` is the mean test accuracy over all clients after the
    last round, each with the model that it uses. `result.server.test.accuracy` is that
    of the server's model, and `result.summary` is summary.json.

    Args:
      experiment: the settings; a finished run may get more rounds.
      federation: your own clients. Settings that contradict how they were made are
        refused; `clients` becomes their number.
      task: your own model, from `models.task` or `task_from_nnx`; `model` is then its
        name, which distinguishes it from other models.
      quiet: whether to hide progress on stderr.
      report: whether to draw figures and write report.html.
      callback: called after each evaluation with the round, the evaluation (the same
        type as `result.last`) and the state, whose arrays live until the next round. If
        it returns True, the run ends there and counts as finished. A resumed run does
        not call it again for evaluations that its checkpoint has.
      traced: settings and options of the method whose other values shall compile
        nothing in the next runs of this process, such as ["lr", "lam"]. The result
        differs in the last bits. A name that is no number of the run changes nothing.

    Raises:
      ValueError: a setting is out of range or unknown.
      FolderError: the folder holds another run or cannot be written.
      CheckpointError: none of its checkpoints can be used.
    """
    # Imported here, since Flax and Optax take as long to import as JAX.
    from pfljax.runtime.processes import ask, first
    from pfljax.simulate import begin, loop

    begin.check_callback(callback)
    experiment = begin.validate(experiment, federation, task)
    path = Path(experiment.folder)
    quiet = quiet or not first()
    with opened(experiment, federation, task, quiet, traced) as prepared:
        if prepared is not None:
            loop.run_rounds(prepared._replace(callback=callback), quiet)
        if report:
            ask(_report, path)
        return Result(path, ask(folder.read_json, path / "summary.json"))


@contextmanager
def opened(
    experiment: Experiment,
    federation: "Federation | None",
    task: "Task | None",
    quiet: bool,
    traced: Collection[str],
) -> "Iterator[Run | None]":
    """Locks the folder of a resolved experiment; gives the run, None if it is done."""
    from pfljax.runtime.processes import ask, hold
    from pfljax.simulate import begin

    path = Path(experiment.folder)
    with hold(folder.lock(path)):
        ask(claims.claim, path, experiment)
        ask(claims.check_python, path, federation, task)
        if ask(folder.complete, path, experiment):
            begin.check_data(experiment, federation, path)
            yield None
        else:
            yield begin.begin(experiment, federation, task, path, quiet, traced)


def _report(path: Path) -> None:
    if not (path / "report.html").exists():
        from pfljax.report import write_run_report

        write_run_report(path)
