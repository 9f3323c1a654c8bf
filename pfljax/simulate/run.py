"""A run, for whoever calls it in Python.

It is a pure function of its config. Killed at any moment, the same call goes on from
the last checkpoint and ends with the same bits.
"""

from typing import TYPE_CHECKING

from pfljax.runs.result import Result
from pfljax.runs.settings import Experiment

if TYPE_CHECKING:
    from pfljax.core.types import Task
    from pfljax.data import Federation
    from pfljax.simulate.begin import Callback


def run(
    experiment: Experiment,
    federation: "Federation | None" = None,
    *,
    task: "Task | None" = None,
    quiet: bool = False,
    report: bool = True,
    callback: "Callback | None" = None,
) -> Result:
    """Runs the experiment in its folder, or what is left of it; what it came to.

    `result.personal.test.accuracy` is the mean over all clients on their test rows
    after the last round, each by the model that it uses; `server` in its place is the
    server's one model, and there are other metrics. `result.summary` is summary.json.

    Args:
      experiment: the settings; a finished run may get more rounds.
      federation: clients of your own; settings by which they were not dealt are
        refused, but for defaults, and `clients`, which becomes their number.
      task: a model of your own, of `models.task` or `task_from_nnx`; `model` is then
        its name, which tells it from other models.
      quiet: no progress on stderr.
      report: draw figures and write report.html.
      callback: called after each evaluation with the round, what was judged (as
        `result.last` has it) and the state, whose arrays live until the next round.
        True ends the run there, finished; the same call then finds it so. A run that
        is gone on with asks again for no evaluation that its checkpoint has.

    Raises:
      ValueError: a setting is out of range or unknown.
      FolderError: the folder holds another run or cannot be written.
      CheckpointError: none of its checkpoints can be used.
    """
    # Only now: with Flax and Optax it takes as long as to import JAX.
    from pfljax.simulate.run_group import run_at_once

    federations = [federation]
    (result,) = run_at_once([experiment], federations, task, quiet, report, callback)
    return result
