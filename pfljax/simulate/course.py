"""How far a run has come, and what its folder gets of it."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.types import Metrics, RunState
from pfljax.engine.population import Population
from pfljax.runs import checkpoint, log, single_evaluations, sinks
from pfljax.runs.sinks import Sink
from pfljax.runtime import memory
from pfljax.runtime.processes import ask, everywhere
from pfljax.runtime.progress import Show
from pfljax.simulate import evaluation
from pfljax.simulate.begin import Run, nothing
from pfljax.simulate.results import Line

SAVE_SECONDS = 60.0  # a checkpoint at least this often, if a round is not longer
COPIED_BYTES = 2**26  # of a state: the most that is saved while the next rounds train


class Standing(NamedTuple):
    """How far a run has come, between two calls of the compiled rounds."""

    state: RunState
    done: int  # rounds
    last: Line | None  # the newest of its log, which is a file: it may get long
    log: int  # checksum of the log
    pace: float = 0.0  # seconds a round in the last call; 0 before the first
    unsaved: float = 0.0  # seconds of training that no checkpoint holds
    stopped: Line | None = None  # why the run ends here
    write: Callable[[], Any] = nothing  # logs and saves what is not yet


class Chunk(NamedTuple):
    """What one call of the compiled rounds gave."""

    state: RunState
    metrics: Metrics  # by round, on the host
    rounds: int
    seconds: float


class Judged(NamedTuple):
    """What the log gets of a chunk."""

    lines: list[Line]
    by_client: dict[str, np.ndarray]  # metrics [C] by name; {} without an evaluation


class Course(NamedTuple):
    """A run, and what it writes to while it goes."""

    run: Run
    population: Population
    save: checkpoint.Save
    show: Show
    sink: Sink
    writes_later: bool  # while the next rounds train; else before they are called


def left(course: Course, standing: Standing) -> int:
    """Rounds that are still to run."""
    if standing.stopped:
        return 0
    return course.run.experiment.participation.rounds - standing.done


def record(
    course: Course, standing: Standing, chunk: Chunk, judged: Judged
) -> Standing:
    """Logs and saves this standing, or gives it a `write` that does so.

    That is called once the next rounds have been: they train meanwhile.
    """
    write = partial(_write, course, chunk, judged)
    if not course.writes_later or not left(course, standing):
        return write(standing)
    # The next rounds take the state itself.
    copy = standing._replace(state=jax.tree.map(_copied, standing.state))
    unsaved = 0.0 if _is_due(course, standing) else standing.unsaved
    return standing._replace(write=partial(write, copy), unsaved=unsaved)


def _write(
    course: Course, chunk: Chunk, judged: Judged, standing: Standing
) -> Standing:
    """Appends the chunk to the logs, and saves the state where that is due."""
    run = course.run
    if judged.by_client:
        # Alone: with all before it, a run would write a square of its evaluations.
        write = single_evaluations.write
        ask(write, run.path, standing.done, judged.by_client)
    # Before the checkpoint: lines that no checkpoint follows are cut when the run goes
    # on, but a checkpoint without its lines could not be gone on from.
    ask(log.append, run.path / "metrics.jsonl", judged.lines)
    if run.experiment.output.log:
        everywhere(course.sink.write, [sinks.row_of(line) for line in judged.lines])
    timing = {"round": standing.done, "rounds": chunk.rounds, "seconds": chunk.seconds}
    ask(log.append, run.path / "timing.jsonl", [timing | memory.highest()])
    return save_if_due(course, standing)


def _is_due(course: Course, standing: Standing) -> bool:
    """Whether a checkpoint is: after every evaluation, and at least once a minute."""
    evaluated = evaluation.due(course.run.experiment, standing.done)
    return evaluated or standing.unsaved > SAVE_SECONDS


def save_if_due(course: Course, standing: Standing) -> Standing:
    """The standing, whose state a checkpoint has where one is due."""
    if not _is_due(course, standing):
        return standing
    write = partial(course.save, standing.done, standing.state, standing.log)
    course.population.save(standing.done, write)
    return standing._replace(unsaved=0.0)


def may_write_later(run: Run, state: RunState) -> bool:
    """Whether the next rounds may begin before this state is saved."""
    # Processes would meet in the midst of those rounds, and a store has to be saved
    # before they change it.
    alone = not jax.distributed.is_initialized() and run.sim.paging is None
    return alone and tree.nbytes(state) <= COPIED_BYTES


def _copied(leaf: jax.Array) -> jax.Array:
    """A copy where the leaf lies, without a program of its own."""
    # A key that is put somewhere may be deleted with the one that was put there.
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        numbers = _copied(jax.random.key_data(leaf))
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(leaf))
    return jax.device_put(leaf, may_alias=False)
