"""Restores a run from its newest checkpoint, and its log up to there."""

from contextlib import suppress
from functools import partial

import jax

from pfljax.engine import mesh
from pfljax.evaluation.views import MIXTURE
from pfljax.runs import checkpoint, claims, config, folder, log
from pfljax.runs.checkpoint import Meta
from pfljax.runs.log import Line
from pfljax.runtime.processes import ask, say
from pfljax.simulate import evaluation, simulation, stopping
from pfljax.simulate.begin import Run
from pfljax.simulate.results import FACTS, Progress


def restore(run: Run) -> tuple[Progress, Meta | None]:
    """The progress at the newest checkpoint, or before the first round.

    Also returns the description of the checkpoint; None without one.
    """
    digest = config.digest(run.experiment)
    abstract = simulation.abstract(run.sim)
    saved = checkpoint.restore(run.path / "checkpoints", abstract, digest, say)
    if saved is None:
        _check_unsaved(run)
    meta = saved.meta if saved else None
    done = meta.round if meta else 0
    _read_history(run, done)
    lines, checksum = read_log(run, done, meta.log if meta else None)
    # Written only now: files that are refused are not changed.
    ask(claims.go_on, run.path, run.experiment)
    lines = stopping.drop_outdated(run, lines)
    ask(log.rewrite, run.path / "metrics.jsonl", lines)
    init, key = run.sim.init, jax.random.key(run.experiment.seed)
    state = saved.state if saved else init(key)
    # The first state has the layout of a restored one, or rounds would compile twice.
    state = jax.device_put(state, mesh.shardings(run.sim.setting.mesh, state))
    last = lines[-1] if lines else {}
    progress = Progress(
        state=state,
        done=done,
        last=last,
        log=checksum,
        seconds=meta.seconds if meta else 0.0,
        stopped=stopping.resume(run, state, last),
    )
    return progress, meta


def _check_unsaved(run: Run) -> None:
    """Refuses to start again at round 1 over the log of a run that lost its states."""
    lines = ask(log.read, run.path / "metrics.jsonl", run.experiment.rounds)
    # The third evaluation is logged after the checkpoint of the first one is complete.
    if sum("evaluations" in line for line in lines) > 2:
        raise folder.FolderError(
            f"{run.path} has a log of {len(lines)} rounds, but no checkpoint: put its "
            "checkpoints back, or start again with another --out"
        )


def read_log(run: Run, done: int, expected: int | None) -> tuple[list[Line], int]:
    """The log up to round `done`, and its checksum: the `expected` one, if any."""
    due = partial(evaluation.is_due, run.experiment)
    file = run.path / "metrics.jsonl"
    lines = ask(log.read, file, done, due)
    in_order = [line["round"] for line in lines] == list(range(1, done + 1))
    checksum = None
    with suppress(IndexError):  # of a history that lacks evaluations
        checksum = log.checksum(lines, run.history, run.experiment.eval_every)
    if not in_order or checksum is None or expected not in (None, checksum):
        raise folder.FolderError(
            f"{file}, clients.npz or .evaluations beside it is not what was written "
            f"up to round {done}, which the checkpoint is of: put them back, or start "
            "again with another --out"
        )
    return lines, checksum


def _read_history(run: Run, done: int) -> None:
    """Fills `run.history` with the metrics of each client up to round `done`."""
    arrays = ask(folder.read_arrays, run.path / "clients.npz")
    # Files are written before the checkpoint and may be ahead of it. An evaluation that
    # is not due was the last one of a run with fewer rounds.
    missing = {r for r in range(1, done + 1) if evaluation.is_due(run.experiment, r)}
    if arrays:
        rounds = arrays["round"].ravel().tolist()
        is_due = [r in missing for r in rounds]
        missing -= set(rounds)
        for name, array in arrays.items():
            # Unknown arrays are kept, because they are part of the checksum.
            by_round = name not in FACTS and not name.startswith(MIXTURE)
            if by_round and array.shape[:1] == (len(rounds),):
                run.history[name] = list(array[is_due])
    # Evaluations after clients.npz was written. A kill before they are removed leaves
    # both.
    for round_ in sorted(missing):
        newest = ask(folder.read_evaluation, run.path, round_)
        for name, array in newest.items():
            run.history.setdefault(name, []).append(array)
