"""Runs an experiment: chunks of rounds, then evaluate, log and save, until done.

A run is a pure function of its config. Killed at any moment, the same call goes on from
the last checkpoint and ends with the same bits.
"""

import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax import assess, build, checkpoint, config, engine, folder, metrics
from pfljax.build import Simulation
from pfljax.config import Experiment
from pfljax.data import Federation
from pfljax.progress import progress
from pfljax.types import RunState

CALL_SECONDS = 10.0  # aim of one call of the compiled rounds
SAVE_SECONDS = 60.0  # a checkpoint at least this often, if a round is not longer


class Run(NamedTuple):
    """What the run loop holds; all but `history` follows from the config."""

    experiment: Experiment
    sim: Simulation
    federation: Federation
    unseen: Federation | None
    traffic: engine.Traffic
    path: Path
    history: dict[str, list]  # of per_client.npz, by evaluation


def run(
    experiment: Experiment,
    federation: Federation | None = None,
    *,
    quiet: bool = False,
    report: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in its folder, or what is left of it; the summary.

    Args:
      experiment: the settings.
      federation: clients of your own; `dataset` and `partition` are then mere names.
      quiet: no progress on stderr.
      report: draw figures and write report.html.

    Raises:
      ValueError: a setting is out of range or unknown.
      FolderError: the folder holds another run or cannot be written.
      CheckpointError: none of its checkpoints can be used.
    """
    config.check(experiment)
    experiment = config.resolve(experiment)
    path = Path(experiment.folder)
    with folder.locked(path):
        folder.claim(path, experiment)
        if not (path / "summary.json").exists():
            prepared = _prepare(experiment, federation, path)
            folder.begin(path, experiment, _manifest(prepared))
            _run_rounds(prepared, quiet)
        if report and not (path / "report.html").exists():
            from pfljax.report import write_run_report

            write_run_report(path)
    return folder.read_json(path / "summary.json")


def _manifest(run: Run) -> dict[str, Any]:
    """partition.json: who holds which rows, newcomers apart."""
    newcomers = run.unseen.manifest if run.unseen else None
    return run.federation.manifest | {"unseen": newcomers}


def _prepare(experiment: Experiment, given: Federation | None, path: Path) -> Run:
    federation, unseen = build.federation(experiment, given)
    sim = build.simulation(experiment, federation)
    traffic = engine.traffic(
        sim.setting.algorithm,
        sim.task,
        federation.num_clients,
        federation.train.examples.x.shape[1:],
    )
    run = Run(experiment, sim, federation, unseen, traffic, path, {})
    _check_baseline(run)
    return run


def _run_rounds(run: Run, quiet: bool) -> None:
    """All rounds that are left, then the summary."""
    experiment, path = run.experiment, run.path
    state, lines = _restore(run)
    done, total = int(state.round), experiment.rounds
    saved, pace = time.monotonic(), 0.0
    digest = config.digest(experiment)
    with (
        checkpoint.writer(path / "checkpoints", digest, experiment.keep) as save,
        progress(total, done, experiment.cohort, quiet) as show,
    ):
        while done < total:
            count = _chunk(experiment, run.sim.longest, done, pace)
            start = time.monotonic()
            state, trained = run.sim.rounds(state, run.federation.train, count)
            trained = jax.device_get(trained)
            seconds = time.monotonic() - start
            pace, done = seconds / count, done + count
            lines += _log(run, trained, done, count, lines)
            figures = {"loss": lines[-1]["train_loss"]}
            if _evaluated(experiment, done):
                records = _evaluate(run, state)
                lines[-1]["evaluations"] = records
                figures["accuracy"] = assess.headline(records)
            folder.append_lines(path / "metrics.jsonl", lines[-count:])
            timing = {"round": done, "rounds": count, "seconds": seconds}
            folder.append_lines(path / "timing.jsonl", [timing])
            if _evaluated(experiment, done) or time.monotonic() - saved > SAVE_SECONDS:
                save(done, state)
                saved = time.monotonic()
            show(done, **figures)
    _finish(run, state, lines)


def _restore(run: Run) -> tuple[RunState, list[dict[str, Any]]]:
    """The last saved state and its log, or the first state and an empty log."""
    key = jax.random.key(run.experiment.seed)
    abstract = jax.eval_shape(run.sim.init, key)
    digest = config.digest(run.experiment)
    state = checkpoint.restore(run.path / "checkpoints", abstract, digest, _say)
    done = 0 if state is None else int(state.round)
    lines = folder.cut_lines(run.path / "metrics.jsonl", done)
    folder.cut_lines(run.path / "timing.jsonl", done)
    if len(lines) != done:
        raise folder.FolderError(
            f"{run.path}/metrics.jsonl has {len(lines)} rounds, its checkpoint {done}; "
            "the log was changed: start again with another --out"
        )
    arrays = folder.read_arrays(run.path / "per_client.npz")
    if "round" in arrays:
        kept = arrays["round"] <= done
        for name, array in arrays.items():
            if name not in assess.BY_CLIENT:
                run.history[name] = list(array[kept])
    state = run.sim.init(key) if state is None else state
    return jax.device_put(state, jax.devices()[0]), lines  # as a restored one lies


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _evaluated(experiment: Experiment, round_: int) -> bool:
    return round_ % experiment.eval_every == 0 or round_ == experiment.rounds


def _chunk(experiment: Experiment, longest: int, done: int, pace: float) -> int:
    """Rounds of the next call: to the next evaluation, but not much over 10 seconds."""
    until = experiment.eval_every - done % experiment.eval_every
    until = min(until, experiment.rounds - done, longest)
    in_time = int(CALL_SECONDS / pace) if pace else 1
    return max(1, min(until, in_time))


def _log(
    run: Run, trained: dict[str, np.ndarray], done: int, count: int, lines: list
) -> list[dict[str, Any]]:
    """The log's lines of the `count` rounds up to `done`."""
    last = lines[-1] if lines else {"bytes_down": 0, "bytes_up": 0}
    down = run.traffic.down * run.experiment.cohort
    ups = np.cumsum(trained["reported"][:count]).astype(int) * run.traffic.up
    return [
        {
            "round": done - count + i + 1,
            "train_loss": folder.number(trained["loss"][i]),
            "bytes_down": last["bytes_down"] + down * (i + 1),
            "bytes_up": last["bytes_up"] + int(ups[i]),
        }
        for i in range(count)
    ]


def _evaluate(run: Run, state: RunState) -> list[dict[str, Any]]:
    """The records of this evaluation; metrics of each client go to per_client.npz."""
    records, values = assess.assess(run.sim, run.federation, run.unseen, state)
    for name, array in values.items():
        run.history.setdefault(name, []).append(array)
    folder.write_arrays(run.path / "per_client.npz", _arrays(run, state))
    return records


def _arrays(run: Run, state: RunState) -> dict[str, np.ndarray]:
    """per_client.npz: metrics [T, C] over the evaluations, and facts of the clients."""
    stacked = {name: np.stack(arrays) for name, arrays in run.history.items()}
    return stacked | {
        "train_size": np.asarray(run.federation.train.size),
        "test_size": np.asarray(run.federation.test.size),
        "participations": np.asarray(run.sim.participations(state.key, state.round)),
    }


def _finish(run: Run, state: RunState, lines: list[dict[str, Any]]) -> None:
    """Writes what only the end can tell: paths between endpoints, and the summary."""
    arrays = _arrays(run, state)
    mixture = None
    if run.sim.path is not None:
        mixture, paths = assess.mixture(run.sim, run.federation, state)
        arrays |= paths
    folder.write_arrays(run.path / "per_client.npz", arrays)
    summary = {
        "label": run.experiment.label,
        "algorithm": run.experiment.algorithm,
        "seed": run.experiment.seed,
        "rounds": run.experiment.rounds,
        **assess.summary(lines, arrays),
        "mixture": mixture,
        "traffic": {
            "down_per_client": run.traffic.down,
            "up_per_client": run.traffic.up,
            "down_total": lines[-1]["bytes_down"],
            "up_total": lines[-1]["bytes_up"],
        },
        "worse_than_local": _worse_than(run.experiment.baseline, arrays),
    }
    folder.write_json(run.path / "summary.json", summary)


def _worse_than(baseline: str | None, arrays: dict[str, np.ndarray]) -> float | None:
    """Share of clients below their accuracy in the baseline run; None without one."""
    if baseline is None:
        return None
    name = "personal/test/accuracy"
    there = folder.read_arrays(Path(baseline) / "per_client.npz")
    return metrics.worse_share(arrays[name][-1], there[name][-1])


def _check_baseline(run: Run) -> None:
    """Raises a ValueError unless the baseline is finished and over the same clients."""
    if run.experiment.baseline is None:
        return
    path = Path(run.experiment.baseline)
    if not (path / "summary.json").exists():
        raise ValueError(f"baseline {path} is not a finished run; run it first")
    manifest = folder.read_json(path / "partition.json")
    if not folder.same_clients(manifest, run.federation.manifest):
        raise ValueError(
            f"baseline {path} is over other clients; "
            "run it with the same data settings and seed"
        )
