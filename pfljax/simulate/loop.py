"""The rounds of a run: chunks of them, then evaluate, log and save, until done.

The host logs and saves a small state while the devices train the next chunk. Runs that
are trained at once do so side by side, each with its own files.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import jax

from pfljax.core.types import Metrics, RunState
from pfljax.engine import mesh
from pfljax.runs import checkpoint, config, log
from pfljax.runs.checkpoint_meta import Meta
from pfljax.runs.settings import Experiment
from pfljax.runtime.processes import ask, say
from pfljax.runtime.progress import progress
from pfljax.simulate import evaluation, own_log, results, simulation, stopping
from pfljax.simulate.at_once import Several, name_of
from pfljax.simulate.begin import Run
from pfljax.simulate.course import (
    Chunk,
    Course,
    Judged,
    Standing,
    left,
    may_write_later,
    record,
)
from pfljax.simulate.population import open_population

CALL_SECONDS = 10.0  # aim of one call of the compiled rounds


def run_rounds(
    runs: Mapping[int, Run], quiet: bool, several: Several | None = None
) -> None:
    """All rounds that are left of one run, or of `several`, then the summaries."""
    courses: dict[int, Course] = {}
    standings: dict[int, Standing] = {}
    with ExitStack() as stack:
        for place, run in runs.items():
            # Of runs that go on together, one is shown.
            shown = None if quiet or courses else name_of(list(runs.values()))
            alone = several is None
            courses[place], standings[place] = _take_up(run, stack, shown, alone)
        while any(left(courses[place], standings[place]) for place in runs):
            chunks = _train(courses, standings, several)
            for place, course in courses.items():
                standings[place] = _after(course, standings[place], chunks[place])
        # While the last checkpoints are still being written.
        ends = [
            results.end(course.run, course.population, standings[place].state)
            for place, course in courses.items()
        ]
        for course in courses.values():
            course.population.committed()
    for end, standing in zip(ends, standings.values(), strict=True):
        lines, _ = own_log.read(end.run, standing.done, standing.log)
        results.finish(end, lines, standing.stopped)


def _take_up(
    run: Run, stack: ExitStack, shown: str | None, alone: bool
) -> tuple[Course, Standing]:
    """The run from its last checkpoint on, its files open until `stack` ends.

    Its progress is shown under the name `shown`, and not at all if that is None. Of
    runs that go on together none is `alone`.
    """
    experiment = run.experiment
    quiet = shown is None
    total = experiment.participation.rounds
    standing, meta = _restore(run)
    if standing.done and not quiet:
        say(f"pfljax: going on from round {standing.done} of {total}")
    population = open_population(
        run.sim,
        experiment,
        run.path,
        meta,
        say,
        public=run.federation.public,
    )
    checkpoints = run.path / "checkpoints"
    digest = config.digest(experiment)
    cohort = experiment.participation.cohort
    writer = checkpoint.writer(checkpoints, digest, experiment.output.keep)
    course = Course(
        run=run,
        population=population,
        save=stack.enter_context(writer),
        show=stack.enter_context(
            progress(total, standing.done, cohort, quiet, shown or "")
        ),
        sink=own_log.open_sink(run, standing.done, stack, quiet),
        writes_later=alone and may_write_later(run, standing.state),
    )
    if course.writes_later and left(course, standing):
        return course, standing._replace(write=run.describe)
    run.describe()
    return course, standing


def _after(course: Course, standing: Standing, chunk: Chunk) -> Standing:
    """How far the run has come with this chunk, which is logged and saved."""
    if chunk.rounds == 0:  # it had ended before the others
        return standing._replace(state=chunk.state)
    standing, judged = _judge(course, standing, chunk)
    standing = record(course, standing, chunk, judged)
    course.show(standing.done, **_figures(standing))
    return standing


def _restore(run: Run) -> tuple[Standing, Meta | None]:
    """The last saved state and its log, or the first state and an empty log.

    And what the checkpoint says of itself, None without one.
    """
    digest = config.digest(run.experiment)
    abstract = simulation.abstract(run.sim)
    saved = checkpoint.restore(run.path / "checkpoints", abstract, digest, say)
    meta = saved.meta if saved else None
    lines, checksum = own_log.take_up(run, meta)
    init = run.sim.init
    state = saved.state if saved else init(jax.random.key(run.experiment.seed))
    # A first state is laid as a restored one lies, or the rounds compile twice.
    state = jax.device_put(state, mesh.shardings(run.sim.setting.mesh, state))
    done = meta.round if meta else 0
    last = lines[-1] if lines else None
    standing = Standing(
        state=state,
        done=done,
        last=last,
        log=checksum,
        stopped=stopping.taken_up(run, state, last),
    )
    return standing, meta


def _train(
    courses: Mapping[int, Course],
    standings: Mapping[int, Standing],
    several: Several | None,
) -> dict[int, Chunk]:
    """One call of the compiled rounds: up to the next evaluation, or a few seconds."""
    started = time.monotonic()
    if several is None:
        ((place, course),) = courses.items()
        state, metrics, count = _alone(course, standings[place])
        states, metrics, counts = {place: state}, {place: metrics}, {place: count}
    else:
        counts = {place: _next(courses[place], standings[place]) for place in courses}
        # The old states are donated: from here on nobody may read `standing.state`.
        states = {place: standing.state for place, standing in standings.items()}
        states, metrics = several.rounds(states, counts)
    # By the clock of process 0. The pace decides how many rounds the next call has;
    # processes that disagree on that wait for each other forever.
    seconds = ask(float, time.monotonic() - started)
    chunks = {}
    for place in courses:
        chunks[place] = Chunk(
            state=states[place],
            metrics=metrics[place],
            rounds=counts[place],
            seconds=seconds,
        )
    return chunks


def _alone(course: Course, standing: Standing) -> tuple[RunState, Metrics, int]:
    """(the state after a call of the rounds, metrics by round, how many they are)."""
    run, population, *_ = course
    # What is read ahead is run as it was planned: else it is read again.
    count = population.planned() or _next(course, standing)
    ahead = 0
    if not _may_stop(run, standing.done + count):
        ahead = _next(course, standing._replace(done=standing.done + count))
    # The old state is donated: from here on nobody may read `standing.state`.
    train = run.federation.train
    try:
        state, metrics = population.rounds(standing.state, train, count, ahead)
    finally:  # whatever the rounds raise, those before them are kept
        standing.write()
    # Waits: the clock must see the rounds done.
    return state, jax.device_get(metrics), count


def _may_stop(run: Run, round_: int) -> bool:
    """Whether the run may end after this round: then nobody is read ahead."""
    is_watched = run.callback is not None or run.experiment.evaluation.patience
    return bool(is_watched) and evaluation.due(run.experiment, round_)


def _next(course: Course, standing: Standing) -> int:
    """Rounds of the next call."""
    if standing.stopped:
        return 0
    run = course.run
    longest = run.sim.longest
    return _rounds_of_call(run.experiment, longest, standing.done, standing.pace)


def _rounds_of_call(
    experiment: Experiment, longest: int, done: int, pace: float
) -> int:
    """Rounds of the next call: to the next evaluation, but not much over 10 seconds.

    0 after the last.
    """
    every = experiment.evaluation.eval_every
    to_evaluation = every - done % every
    rest = experiment.participation.rounds - done
    # The first call is one round: nobody knows yet how long it takes.
    in_time = int(CALL_SECONDS / pace) if pace else 1
    return min(to_evaluation, rest, longest, max(1, in_time))


def _judge(course: Course, standing: Standing, chunk: Chunk) -> tuple[Standing, Judged]:
    """How far the run has come with this chunk, evaluated where that is due."""
    run = course.run
    done = standing.done + chunk.rounds
    stopped = None
    rounds = range(standing.done + 1, done + 1)
    lines = results.log_lines(run, chunk.metrics, rounds, standing.last)
    newest = {}
    if evaluation.due(run.experiment, done):
        lines[-1] |= results.evaluate(run, course.population, chunk.state, lines[-1])
        newest = {name: values[-1] for name, values in run.history.items()}
        stopped = stopping.after(run, chunk.state, lines[-1])
        if stopped is not None:
            lines[-1]["stopped"] = stopped
    every = run.experiment.evaluation.eval_every
    history = {name: [values] for name, values in newest.items()}
    standing = Standing(
        state=chunk.state,
        done=done,
        last=lines[-1],
        log=log.checksum(lines, history, every, standing.log),
        pace=chunk.seconds / chunk.rounds,
        unsaved=standing.unsaved + chunk.seconds,
        stopped=stopped,
    )
    return standing, Judged(lines, newest)


def _figures(standing: Standing) -> dict[str, Any]:
    """What the progress bar shows after this round."""
    line = standing.last or {"train_loss": None}
    figures = {"loss": line["train_loss"]}
    if "evaluations" in line:
        figures["accuracy"] = evaluation.headline(line["evaluations"])
    return figures
