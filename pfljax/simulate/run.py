"""Runs an experiment: chunks of rounds, then evaluate, log and save, until done.

A run is a pure function of its config. Killed at any moment, the same call goes on from
the last checkpoint and ends with the same bits.
"""

import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax.core.communication import Traffic, traffic_of
from pfljax.core.types import RunState, Task
from pfljax.data import Federation
from pfljax.engine import mesh
from pfljax.engine.population import Population
from pfljax.models import check_task
from pfljax.runs import baseline, checkpoint, checks, config, folder
from pfljax.runs.provenance import of_run, rows_of_run
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices
from pfljax.runtime.processes import ask, check_same, first, holding, say
from pfljax.runtime.progress import progress
from pfljax.simulate import evaluation, simulation, width
from pfljax.simulate.federation import build_federation
from pfljax.simulate.population import open_population
from pfljax.simulate.simulation import Simulation

CALL_SECONDS = 10.0  # aim of one call of the compiled rounds
SAVE_SECONDS = 60.0  # a checkpoint at least this often, if a round is not longer


class Run(NamedTuple):
    """What the run loop holds; all but `history` follows from the config."""

    experiment: Experiment
    sim: Simulation
    federation: Federation
    unseen: Federation | None
    traffic: Traffic
    path: Path
    history: dict[str, list]  # of per_client.npz, by evaluation


def run(
    experiment: Experiment,
    federation: Federation | None = None,
    *,
    task: Task | None = None,
    quiet: bool = False,
    report: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in its folder, or what is left of it; the summary.

    Args:
      experiment: the settings; a finished run may get more rounds.
      federation: clients of your own; `dataset` and `partition` are then mere names.
      task: a model of your own, of `models.task` or `task_from_nnx`; `model` is then
        its name, which tells it from other models.
      quiet: no progress on stderr.
      report: draw figures and write report.html.

    Raises:
      ValueError: a setting is out of range or unknown.
      FolderError: the folder holds another run or cannot be written.
      CheckpointError: none of its checkpoints can be used.
    """
    experiment = simulation.truthful(experiment, federation, task)
    checks.check(experiment, own_model=task is not None)
    experiment = checks.resolve(experiment)
    check_same("settings", repr(experiment))
    path, quiet = Path(experiment.folder), quiet or not first()
    with holding(folder.locked(path)):
        ask(folder.claim, path, experiment)
        ask(folder.check_python, path, federation, task)
        if not ask(folder.complete, path, experiment.participation.rounds):
            _run_rounds(_begin(experiment, federation, task, path, quiet), quiet)
        else:
            if federation is not None:
                people = build_federation(experiment, federation)
                ask(folder.check_data, path, of_run(*people, given=True))
            ask(baseline.recount, path, experiment)
        if report:
            ask(_report, path)
    return ask(folder.read_json, path / "summary.json")


def _report(path: Path) -> None:
    if not folder.drawn(path):
        from pfljax.report import write_run_report

        write_run_report(path)


def _begin(
    experiment: Experiment,
    given: Federation | None,
    task: Task | None,
    path: Path,
    quiet: bool,
) -> Run:
    """What is run, after all that could be wrong with it; its folder is described."""
    devices.prepare()
    people = build_federation(experiment, given)
    manifest, rows = of_run(*people, given is not None), rows_of_run(*people)
    check_same("data", manifest["sha256"])
    ask(baseline.check, experiment.evaluation.baseline, manifest)
    run = _prepare(experiment, *people, task, path)
    ask(folder.begin, path, experiment, manifest, rows)
    ask(width.remember, path, experiment, run.sim)
    if not quiet:
        say(f"pfljax: {simulation.choices(run.sim)}")
    return run


def _prepare(
    experiment: Experiment,
    federation: Federation,
    unseen: Federation | None,
    task: Task | None,
    path: Path,
) -> Run:
    x = federation.train.examples.x
    if task is not None:
        check_task(task, x.shape[1:], federation.num_classes)
    sim = width.choose(experiment, federation, task, path)
    federation = simulation.placed(sim, federation)
    unseen = unseen and simulation.placed(sim, unseen)
    traffic = traffic_of(
        sim.setting.algorithm, sim.task, federation.num_clients, x.shape[1:]
    )
    return Run(
        experiment=experiment,
        sim=sim,
        federation=federation,
        unseen=unseen,
        traffic=traffic,
        path=path,
        history={},
    )


def _run_rounds(run: Run, quiet: bool) -> None:
    """All rounds that are left, then the summary."""
    experiment, path = run.experiment, run.path
    state, lines = _restore(run)
    done, total = int(state.round), experiment.participation.rounds
    if done and not quiet:
        say(f"pfljax: going on from round {done} of {total}")
    population = open_population(run.sim, experiment, path, done, say)
    pace = 0.0  # seconds a round
    unsaved = 0.0  # seconds
    digest = config.digest(experiment)
    with (
        checkpoint.writer(path / "checkpoints", digest, experiment.output.keep) as save,
        progress(total, done, experiment.participation.cohort, quiet) as show,
    ):
        while done < total:
            chunk = partial(_chunk, experiment, run.sim.longest, pace=pace)
            started = time.monotonic()
            # What is read ahead is run as it was planned: else it is read again.
            count = population.planned() or chunk(done)
            ahead = chunk(done + count)
            train = run.federation.train
            state, trained = population.rounds(state, train, count, ahead)
            trained = jax.device_get(trained)
            seconds = ask(float, time.monotonic() - started)  # one clock for all
            pace = seconds / count
            done += count
            unsaved += seconds
            lines += _log(run, trained, done, count, lines)
            figures = {"loss": lines[-1]["train_loss"]}
            if _evaluated(experiment, done):
                records = _evaluate(run, population, state)
                lines[-1]["evaluations"] = records
                figures["accuracy"] = evaluation.headline(records)
            ask(folder.append_lines, path / "metrics.jsonl", lines[-count:])
            timing = {"round": done, "rounds": count, "seconds": seconds}
            ask(folder.append_lines, path / "timing.jsonl", [timing])
            if _evaluated(experiment, done) or unsaved > SAVE_SECONDS:
                population.save(done, partial(save, done, state))
                unsaved = 0.0
            show(done, **figures)
        population.committed()
    _finish(run, population, state, lines)


def _restore(run: Run) -> tuple[RunState, list[dict[str, Any]]]:
    """The last saved state and its log, or the first state and an empty log."""
    digest, abstract = config.digest(run.experiment), simulation.abstract(run.sim)
    state = checkpoint.restore(run.path / "checkpoints", abstract, digest, say)
    done = 0 if state is None else int(state.round)
    due = partial(_evaluated, run.experiment)
    lines = ask(folder.cut_lines, run.path / "metrics.jsonl", done, due)
    ask(folder.cut_lines, run.path / "timing.jsonl", done)
    if len(lines) != done:
        raise folder.FolderError(
            f"{run.path}/metrics.jsonl has {len(lines)} rounds, its checkpoint {done}; "
            "the log was changed: start again with another --out"
        )
    arrays = ask(folder.read_arrays, run.path / "per_client.npz")
    if "round" in arrays:
        kept = [r <= done and due(r) for r in arrays["round"]]
        for name, array in arrays.items():
            if name not in evaluation.BY_CLIENT:
                run.history[name] = list(array[kept])
    state = state or run.sim.init(jax.random.key(run.experiment.seed))
    where = mesh.shardings(run.sim.setting.mesh, state)
    return jax.device_put(state, where), lines  # as a restored one lies


def _evaluated(experiment: Experiment, round_: int) -> bool:
    return (
        round_ % experiment.evaluation.eval_every == 0
        or round_ == experiment.participation.rounds
    )


def _chunk(experiment: Experiment, longest: int, done: int, pace: float) -> int:
    """Rounds of the next call: to the next evaluation, but not much over 10 seconds.

    0 after the last.
    """
    until = experiment.evaluation.eval_every - done % experiment.evaluation.eval_every
    until = min(until, experiment.participation.rounds - done, longest)
    in_time = int(CALL_SECONDS / pace) if pace else 1
    return min(until, max(1, in_time))


def _log(
    run: Run, trained: dict[str, np.ndarray], done: int, count: int, lines: list
) -> list[dict[str, Any]]:
    """The log's lines of the `count` rounds up to `done`."""
    last = lines[-1] if lines else {"bytes_down": 0, "bytes_up": 0}
    downs = np.cumsum(trained["asked"][:count]).astype(int) * run.traffic.down
    ups = np.cumsum(trained["reported"][:count]).astype(int) * run.traffic.up
    return [
        {
            "round": done - count + i + 1,
            "train_loss": folder.number(trained["loss"][i]),
            "bytes_down": last["bytes_down"] + int(downs[i]),
            "bytes_up": last["bytes_up"] + int(ups[i]),
        }
        for i in range(count)
    ]


def _evaluate(
    run: Run, population: Population, state: RunState
) -> list[dict[str, Any]]:
    """The records of this evaluation; metrics of each client go to per_client.npz."""
    states = partial(population.states, state)
    records, values = evaluation.assess(
        run.sim, run.federation, run.unseen, state, states
    )
    for name, array in values.items():
        run.history.setdefault(name, []).append(array)
    ask(folder.write_arrays, run.path / "per_client.npz", _arrays(run, state))
    return records


def _arrays(run: Run, state: RunState) -> dict[str, np.ndarray]:
    """per_client.npz: metrics [T, C] over the evaluations, and facts of the clients."""
    stacked = {name: np.stack(arrays) for name, arrays in run.history.items()}
    return stacked | {
        "train_size": np.asarray(run.federation.train.size),
        "test_size": np.asarray(run.federation.test.size),
        "participations": np.asarray(state.participations),
    }


def _finish(
    run: Run, population: Population, state: RunState, lines: list[dict[str, Any]]
) -> None:
    """Writes what only the end can tell: paths between endpoints, and the summary."""
    arrays = _arrays(run, state)
    mixture = None
    if run.sim.path is not None:
        states = partial(population.states, state)
        mixture, paths = evaluation.mixture(run.sim, run.federation, state, states)
        arrays |= paths
    ask(folder.write_arrays, run.path / "per_client.npz", arrays)
    summary = {
        "label": run.experiment.output.label,
        "algorithm": run.experiment.method.algorithm,
        "seed": run.experiment.seed,
        "rounds": run.experiment.participation.rounds,
        **evaluation.summary(lines, arrays),
        "mixture": mixture,
        "traffic": {
            "down_per_client": run.traffic.down,
            "up_per_client": run.traffic.up,
            "down_total": lines[-1]["bytes_down"],
            "up_total": lines[-1]["bytes_up"],
        },
        "worse_than_local": baseline.worse_than(
            run.experiment.evaluation.baseline, arrays
        ),
    }
    ask(folder.write_json, run.path / "summary.json", summary)
    if _diverged(lines[-1]):
        say(
            f"pfljax: warning: {run.path} has diverged: losses of its last round are "
            "not finite; choose a smaller lr"
        )


def _diverged(line: dict[str, Any]) -> bool:
    """Whether the last training loss, or a mean test loss, is not finite."""
    judged = [
        record["metrics"]["loss"]["mean"]
        for record in line["evaluations"]
        if record["split"] == "test" and record["clients"] == "all"
    ]
    return None in (line["train_loss"], *judged)
