"""Trains the rounds of a run, and evaluates, logs and saves in between.

The host logs and saves a small state while the devices train the next rounds. `train`
is a generator: it yields each block of rounds and goes on when it is sent what they
gave, so that the blocks of several runs can train together (`pfljax.sweep.together`).
"""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.types import Metrics, RunState
from pfljax.engine.offload import Population
from pfljax.runs import checkpoint, config, log, sinks
from pfljax.runs.settings import Experiment
from pfljax.runs.sinks import Sink
from pfljax.runtime import signals
from pfljax.runtime.processes import ask, every, everywhere, first, say
from pfljax.runtime.progress import progress as progress_bar
from pfljax.simulate import evaluation, results, stopping
from pfljax.simulate.begin import Run
from pfljax.simulate.population import open_population
from pfljax.simulate.results import Progress, Rounds
from pfljax.simulate.resume import read_log, restore

CALL_SECONDS = 10.0  # intended length of one call of the compiled rounds
SAVE_SECONDS = 60.0  # longest time between checkpoints, if a round is not longer
COPIED_BYTES = 2**26  # of the largest state that is saved while the next rounds train


class Block(NamedTuple):
    """One call of the compiled rounds of a run."""

    run: Run
    population: Population
    state: RunState  # before them; it is donated
    rounds: int
    ahead: int  # rounds that the next call is expected to have
    pending: Callable[[], Any]  # to call while they train


# (the state after a block, metrics by round, seconds)
Trained = tuple[RunState, Metrics, float]
Blocks = Generator[Block, Trained | None, None]


def run_rounds(run: Run, quiet: bool) -> None:
    """Runs the remaining rounds, and writes the summary.

    At SIGTERM it ends the program after the rounds that are training, and saves them.
    """
    with signals.deferred(), closing(train(run, quiet)) as blocks:
        trained = None
        with suppress(StopIteration):
            while True:
                trained = train_block(blocks.send(trained))


def train(run: Run, quiet: bool) -> Blocks:
    """Yields the blocks of the remaining rounds; then writes the summary."""
    experiment = run.experiment
    total = experiment.rounds
    with ExitStack() as stack:
        progress, meta = restore(run)
        if progress.done and not quiet:
            say(f"pfljax: resuming from round {progress.done} of {total}")
        population = open_population(
            run.sim, experiment, run.path, meta, public=run.federation.public
        )
        writer = checkpoint.writer(
            run.path / "checkpoints",
            config.digest(experiment),
            experiment.keep_checkpoints,
        )
        save = partial(save_population, population, stack.enter_context(writer))
        cohort = experiment.cohort
        name = f"{experiment.label}, seed {experiment.seed}"
        bar = progress_bar(total, progress.done, cohort, quiet, name)
        show = stack.enter_context(bar)
        sink = _open_sink(run, progress.done, stack, quiet)
        write = partial(write_rounds, run, save, sink)
        progress = yield from _train(run, population, progress, write, show)
        results_of_clients = None
        if not progress.terminated:
            results_of_clients = results.write_clients(run, population, progress.state)
        # The last checkpoints are still being written.
        population.commit()
    if results_of_clients is None:
        say(
            f"pfljax: SIGTERM: saved {run.path} after round {progress.done} of "
            f"{total}; the same command resumes"
        )
        sys.exit(signals.REQUEUE)
    lines, _ = read_log(run, progress.done, progress.log)
    results.write_summary(run, *results_of_clients, lines, progress)


def _train(
    run: Run,
    population: Population,
    progress: Progress,
    write: Callable[[Rounds, Progress], Progress],
    show: Callable[..., None],
) -> Generator[Block, Any, Progress]:
    """Yields the blocks of the rounds; returns the progress after the last one."""
    overlaps = _can_overlap(run, progress.state)
    pending: Callable[[], Any] = run.describe  # called while the next rounds train
    if not overlaps or not _rounds_left(run, progress):
        pending()
        pending = _nothing
    while _rounds_left(run, progress):
        state, metrics, seconds = yield _next_block(run, population, progress, pending)
        pending = _nothing
        progress, rounds = _evaluate(run, population, progress, state, metrics, seconds)
        if _rounds_left(run, progress):
            terminated = not every(not signals.terminated())
            progress = progress._replace(terminated=terminated)
        if overlaps and _rounds_left(run, progress):
            # The next rounds donate the state itself.
            copied = progress._replace(state=jax.tree.map(copy, progress.state))
            pending = partial(write, rounds, copied)
            if _is_due(run, progress):
                progress = progress._replace(unsaved=0.0)
        else:
            progress = write(rounds, progress)
        show(progress.done, **_figures(progress, run.experiment.monitor))
    return progress


def _nothing() -> None:
    """Writes nothing."""


def _rounds_left(run: Run, progress: Progress) -> int:
    if progress.stopped or progress.terminated:
        return 0
    return run.experiment.rounds - progress.done


def _next_block(
    run: Run, population: Population, progress: Progress, pending: Callable[[], Any]
) -> Block:
    """The next rounds up to an evaluation, or fewer."""
    longest = run.sim.longest
    # If clients were read ahead, the call has the rounds that they were read for.
    count = population.rounds_ahead() or rounds_of_call(
        run.experiment, longest, progress.done, progress.pace
    )
    done = progress.done + count
    ahead = 0
    # Where the run may stop, no clients are read ahead.
    is_watched = run.callback is not None or run.experiment.patience
    if not is_watched or not evaluation.is_due(run.experiment, done):
        ahead = rounds_of_call(run.experiment, longest, done, progress.pace)
    # The old state is donated: `progress.state` must not be read from here on.
    return Block(run, population, progress.state, count, ahead, pending)


def train_block(block: Block) -> Trained:
    """Trains the rounds of a block."""
    started = time.monotonic()
    train, count = block.run.federation.train, block.rounds
    try:
        state, metrics = block.population.rounds(block.state, train, count, block.ahead)
    finally:  # the rounds before are kept, even if these raise an error
        block.pending()
    # Waits for the rounds, whose time is measured.
    metrics = jax.device_get(metrics)
    # By the clock of process 0: the pace decides how many rounds the next call has, on
    # which all processes must agree.
    seconds = ask(float, time.monotonic() - started)
    return state, {name: metric[:count] for name, metric in metrics.items()}, seconds


def rounds_of_call(experiment: Experiment, longest: int, done: int, pace: float) -> int:
    """The number of rounds until the next evaluation, but of at most about 10 seconds.

    It is 0 after the last round.
    """
    every = experiment.eval_every
    to_evaluation = every - done % every
    rest = experiment.rounds - done
    # The first call is one round, whose time is not known yet.
    in_time = int(CALL_SECONDS / pace) if pace else 1
    return min(to_evaluation, rest, longest, max(1, in_time))


def _evaluate(
    run: Run,
    population: Population,
    before: Progress,
    state: RunState,
    metrics: Metrics,
    seconds: float,
) -> tuple[Progress, Rounds]:
    """The progress after these rounds, evaluated if that is due, and their log."""
    lines = results.log_lines(run, metrics, before)
    done = lines[-1]["round"]
    stopped = None
    by_client = {}
    if evaluation.is_due(run.experiment, done):
        lines[-1] |= results.evaluate(run, population, state)
        by_client = {name: values[-1] for name, values in run.history.items()}
        stopped = stopping.after(run, state, lines[-1])
        if stopped is not None:
            lines[-1]["stopped"] = stopped
    every = run.experiment.eval_every
    history = {name: [values] for name, values in by_client.items()}
    progress = Progress(
        state=state,
        done=done,
        last=lines[-1],
        log=log.checksum(lines, history, every, before.log),
        pace=seconds / len(lines),
        unsaved=before.unsaved + seconds,
        seconds=before.seconds + seconds,
        stopped=stopped,
    )
    return progress, Rounds(lines, by_client)


def write_rounds(
    run: Run,
    save: Callable[[Progress], None],
    sink: Sink,
    rounds: Rounds,
    progress: Progress,
) -> Progress:
    """Logs these rounds, and saves the state if that is due."""
    results.append(run, rounds)
    if run.experiment.log:
        everywhere(sink.write, [sinks.make_row(line) for line in rounds.lines])
    if not _is_due(run, progress):
        return progress
    save(progress)
    return progress._replace(unsaved=0.0)


def save_population(
    population: Population, save: checkpoint.Save, progress: Progress
) -> None:
    """Saves the states of the clients, and the checkpoint that belongs to them."""
    write = partial(save, progress.done, progress.state, progress.log, progress.seconds)
    population.save(progress.done, write)


def _is_due(run: Run, progress: Progress) -> bool:
    """Whether a checkpoint is due: after an evaluation, and at least every minute."""
    evaluated = evaluation.is_due(run.experiment, progress.done)
    late = progress.unsaved > SAVE_SECONDS
    return evaluated or late or progress.terminated


def _can_overlap(run: Run, state: RunState) -> bool:
    """Whether the next rounds may begin before this state is saved."""
    # Several processes would communicate during those rounds, and a store must be saved
    # before they change it.
    alone = not jax.distributed.is_initialized() and run.sim.paging is None
    return alone and tree.nbytes(state) <= COPIED_BYTES


def copy(leaf: jax.Array) -> jax.Array:
    """A copy of the leaf on its devices, without compiling a program."""
    # `device_put` of a key may share its buffer in spite of `may_alias`.
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        numbers = copy(jax.random.key_data(leaf))
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(leaf))
    return jax.device_put(leaf, may_alias=False)


def _figures(progress: Progress, monitor: str) -> dict[str, Any]:
    """The numbers that the progress bar shows after this round."""
    line = progress.last
    figures = {"loss": line["train_loss"]}
    if "evaluations" in line:
        name, value = results.lead_metric(line, monitor)
        figures[name] = value
    return figures


def _open_sink(run: Run, done: int, stack: ExitStack, quiet: bool) -> Sink:
    """Opens the sinks of the log, which get the rounds that are done."""

    def begin() -> Sink:
        if not run.experiment.log or not first():
            return sinks.NOTHING
        lines = log.read(run.path / "metrics.jsonl", done)
        return sinks.begin(run.path, run.experiment, lines, quiet)

    # A sink that cannot be opened is an error on every process.
    sink = everywhere(begin)
    stack.callback(sink.close)
    return sink
