"""Runs an experiment: chunks of rounds, then evaluate, log and save, until done.

A run is a pure function of its config. Killed at any moment, the same call goes on from
the last checkpoint and ends with the same bits.
"""

import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from pfljax.core.types import Metrics, RunState, Task
from pfljax.data import Federation, check_federation
from pfljax.engine import mesh
from pfljax.engine.population import Population
from pfljax.runs import baseline, checkpoint, checks, claims, config, folder, log
from pfljax.runs.checkpoint_meta import Meta
from pfljax.runs.provenance import of_run
from pfljax.runs.settings import Experiment
from pfljax.runtime.processes import (
    ask,
    check_same,
    first,
    holding,
    say,
)
from pfljax.runtime.progress import progress
from pfljax.simulate import evaluation, methods, results, simulation
from pfljax.simulate.begin import Run, begin
from pfljax.simulate.federation import build_federation
from pfljax.simulate.population import open_population
from pfljax.simulate.results import Line

CALL_SECONDS = 10.0  # aim of one call of the compiled rounds
SAVE_SECONDS = 60.0  # a checkpoint at least this often, if a round is not longer


def run(
    experiment: Experiment,
    federation: Federation | None = None,
    *,
    task: Task | None = None,
    quiet: bool = False,
    report: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in its folder, or what is left of it; the summary.

    `summary["last"]["personal"]["accuracy"]` is the mean over all clients on their test
    rows after the last round, each by the model that it uses; "server" in its place is
    the server's one model, and there are other metrics. `["evaluations"]` has all that
    was judged, as summary.json has it.

    Args:
      experiment: the settings; a finished run may get more rounds.
      federation: clients of your own; settings by which they were not dealt are
        refused, but for defaults, and `clients`, which becomes their number.
      task: a model of your own, of `models.task` or `task_from_nnx`; `model` is then
        its name, which tells it from other models.
      quiet: no progress on stderr.
      report: draw figures and write report.html.

    Raises:
      ValueError: a setting is out of range or unknown.
      FolderError: the folder holds another run or cannot be written.
      CheckpointError: none of its checkpoints can be used.
    """
    if federation is not None:
        check_federation(federation)
    experiment = simulation.truthful(experiment, federation, task)
    checks.check(
        experiment, own_model=task is not None, own_data=federation is not None
    )
    experiment = checks.resolve(experiment)
    check_same("settings", repr(experiment))
    path = Path(experiment.folder)
    quiet = quiet or not first()
    with holding(folder.locked(path)):
        ask(claims.claim, path, experiment)
        ask(claims.check_python, path, federation, task)
        if ask(folder.complete, path, experiment.participation.rounds):
            _revisit(experiment, federation, path)
        else:
            with methods.fitting(experiment.method.algorithm):
                _run_rounds(begin(experiment, federation, task, path, quiet), quiet)
        if report:
            ask(_report, path)
    return evaluation.by_name(ask(folder.read_json, path / "summary.json"))


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


class Standing(NamedTuple):
    """How far a run has come, between two calls of the compiled rounds."""

    state: RunState
    done: int  # rounds
    last: Line | None  # the newest of its log, which is a file: it may get long
    log: int  # checksum of the log
    pace: float = 0.0  # seconds a round in the last call; 0 before the first
    unsaved: float = 0.0  # seconds of training that no checkpoint holds


class Chunk(NamedTuple):
    """What one call of the compiled rounds gave."""

    state: RunState
    metrics: Metrics  # by round, on the host
    rounds: int
    seconds: float


def _run_rounds(run: Run, quiet: bool) -> None:
    """All rounds that are left, then the summary."""
    experiment = run.experiment
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
    with (
        checkpoint.writer(checkpoints, digest, experiment.output.keep) as save,
        progress(total, standing.done, cohort, quiet) as show,
    ):
        while standing.done < total:
            chunk = _train(run, population, standing)
            standing = _log(run, population, standing, chunk)
            standing = _save_if_due(experiment, population, save, standing)
            show(standing.done, **_figures(standing))
        population.committed()
    lines, _ = _read_log(run, standing.done, standing.log)
    results.finish(run, population, standing.state, lines)


def _restore(run: Run) -> tuple[Standing, Meta | None]:
    """The last saved state and its log, or the first state and an empty log.

    And what the checkpoint says of itself, None without one.
    """
    digest = config.digest(run.experiment)
    abstract = simulation.abstract(run.sim)
    saved = checkpoint.restore(run.path / "checkpoints", abstract, digest, say)
    meta = saved.meta if saved else None
    lines, checksum = _take_up_log(run, meta)
    first = run.sim.init
    state = saved.state if saved else first(jax.random.key(run.experiment.seed))
    # A first state is laid as a restored one lies, or the rounds compile twice.
    state = jax.device_put(state, mesh.shardings(run.sim.setting.mesh, state))
    done = meta.round if meta else 0
    last = lines[-1] if lines else None
    return Standing(state=state, done=done, last=last, log=checksum), meta


def _take_up_log(run: Run, meta: Meta | None) -> tuple[list[Line], int]:
    """(the log up to the checkpoint alone, its checksum), held to what that says."""
    done = meta.round if meta else 0
    results.read_history(run, done)
    lines, checksum = _read_log(run, done, meta.log if meta else None)
    # Only now: what is refused is left as it was found.
    ask(log.rewrite, run.path / "metrics.jsonl", lines)
    timing = run.path / "timing.jsonl"
    ask(log.rewrite, timing, ask(log.read, timing, done))
    return lines, checksum


def _read_log(run: Run, done: int, expected: int | None) -> tuple[list[Line], int]:
    """The log up to round `done`, and its checksum: the `expected` one, if any."""
    due = partial(evaluation.due, run.experiment)
    file = run.path / "metrics.jsonl"
    lines = ask(log.read, file, done, due)
    in_order = [line["round"] for line in lines] == list(range(1, done + 1))
    checksum = _checksum(run, lines)
    if not in_order or checksum is None or expected not in (None, checksum):
        raise folder.FolderError(
            f"{file} or per_client.npz beside it is not what was written up to round "
            f"{done}, which the checkpoint is of: put them back, or start again with "
            "another --out"
        )
    return lines, checksum


def _checksum(run: Run, lines: list[Line]) -> int | None:
    """That of the lines and the history; None where the history lacks evaluations."""
    try:
        return log.checksum(lines, run.history, run.experiment.evaluation.eval_every)
    except IndexError:
        return None


def _train(run: Run, population: Population, standing: Standing) -> Chunk:
    """One call of the compiled rounds: up to the next evaluation, or a few seconds."""
    pace = standing.pace
    longest = run.sim.longest
    started = time.monotonic()
    # What is read ahead is run as it was planned: else it is read again.
    count = population.planned() or _rounds_of_call(
        run.experiment, longest, standing.done, pace
    )
    ahead = _rounds_of_call(run.experiment, longest, standing.done + count, pace)
    # The old state is donated: from here on nobody may read `standing.state`.
    train = run.federation.train
    state, metrics = population.rounds(standing.state, train, count, ahead)
    metrics = jax.device_get(metrics)  # waits: the clock must see the rounds done
    # By the clock of process 0. The pace decides how many rounds the next call has;
    # processes that disagree on that wait for each other forever.
    seconds = ask(float, time.monotonic() - started)
    return Chunk(state=state, metrics=metrics, rounds=count, seconds=seconds)


def _rounds_of_call(
    experiment: Experiment, longest: int, done: int, pace: float
) -> int:
    """Rounds of the next call: to the next evaluation, but not much over 10 seconds.

    0 after the last.
    """
    every = experiment.evaluation.eval_every
    to_evaluation = every - done % every
    left = experiment.participation.rounds - done
    # The first call is one round: nobody knows yet how long it takes.
    in_time = int(CALL_SECONDS / pace) if pace else 1
    return min(to_evaluation, left, longest, max(1, in_time))


def _log(
    run: Run, population: Population, standing: Standing, chunk: Chunk
) -> Standing:
    """Evaluates the chunk where that is due, and appends its rounds to the logs."""
    done = standing.done + chunk.rounds
    rounds = range(standing.done + 1, done + 1)
    lines = results.log_lines(run, chunk.metrics, rounds, standing.last)
    if evaluation.due(run.experiment, done):
        records = results.evaluate(run, population, chunk.state)
        lines[-1]["evaluations"] = records
    # Before the checkpoint: lines that no checkpoint follows are cut when the run goes
    # on, but a checkpoint without its lines could not be gone on from.
    ask(log.append, run.path / "metrics.jsonl", lines)
    timing = {"round": done, "rounds": chunk.rounds, "seconds": chunk.seconds}
    ask(log.append, run.path / "timing.jsonl", [timing])
    newest = {name: values[-1:] for name, values in run.history.items()}
    every = run.experiment.evaluation.eval_every
    return Standing(
        state=chunk.state,
        done=done,
        last=lines[-1],
        log=log.checksum(lines, newest, every, standing.log),
        pace=chunk.seconds / chunk.rounds,
        unsaved=standing.unsaved + chunk.seconds,
    )


def _save_if_due(
    experiment: Experiment,
    population: Population,
    save: checkpoint.Save,
    standing: Standing,
) -> Standing:
    """A checkpoint after every evaluation, and at least once a minute."""
    evaluated = evaluation.due(experiment, standing.done)
    if not evaluated and standing.unsaved <= SAVE_SECONDS:
        return standing
    write = partial(save, standing.done, standing.state, standing.log)
    population.save(standing.done, write)
    return standing._replace(unsaved=0.0)


def _figures(standing: Standing) -> dict[str, Any]:
    """What the progress bar shows after this round."""
    line = standing.last or {"train_loss": None}
    figures = {"loss": line["train_loss"]}
    if "evaluations" in line:
        figures["accuracy"] = evaluation.headline(line["evaluations"])
    return figures
