"""The log that a run goes on from: its own, held to what the checkpoint says of it."""

from contextlib import ExitStack
from functools import partial

from pfljax.runs import folder, log, sinks
from pfljax.runs.checkpoint_meta import Meta
from pfljax.runs.log import Line
from pfljax.runs.sinks import Sink
from pfljax.runtime.processes import ask, everywhere, first
from pfljax.simulate import evaluation, results, stopping
from pfljax.simulate.begin import Run


def take_up(run: Run, meta: Meta | None) -> tuple[list[Line], int]:
    """(the log up to the checkpoint alone, its checksum), held to what that says."""
    done = meta.round if meta else 0
    results.read_history(run, done)
    lines, checksum = read(run, done, meta.log if meta else None)
    # Only now: what is refused is left as it was found.
    lines = stopping.current(run, lines)
    ask(log.rewrite, run.path / "metrics.jsonl", lines)
    timing = run.path / "timing.jsonl"
    ask(log.rewrite, timing, ask(log.read, timing, done))
    return lines, checksum


def read(run: Run, done: int, expected: int | None) -> tuple[list[Line], int]:
    """The log up to round `done`, and its checksum: the `expected` one, if any."""
    due = partial(evaluation.due, run.experiment)
    file = run.path / "metrics.jsonl"
    lines = ask(log.read, file, done, due)
    in_order = [line["round"] for line in lines] == list(range(1, done + 1))
    checksum = _checksum(run, lines)
    if not in_order or checksum is None or expected not in (None, checksum):
        raise folder.FolderError(
            f"{file}, per_client.npz or evaluations beside it is not what was written "
            f"up to round {done}, which the checkpoint is of: put them back, or start "
            "again with another --out"
        )
    return lines, checksum


def _checksum(run: Run, lines: list[Line]) -> int | None:
    """That of the lines and the history; None where the history lacks evaluations."""
    try:
        return log.checksum(lines, run.history, run.experiment.evaluation.eval_every)
    except IndexError:
        return None


def open_sink(run: Run, done: int, stack: ExitStack, quiet: bool) -> Sink:
    """Where the log goes beside its file, with the rounds that are done."""
    if not run.experiment.output.log:
        return sinks.NOTHING

    def begin() -> Sink:
        if not first():
            return sinks.NOTHING
        lines = log.read(run.path / "metrics.jsonl", done)
        return sinks.begin(sinks.Begun(run.path, run.experiment, quiet), lines)

    # A sink that cannot be opened is told on every process.
    sink = everywhere(begin)
    stack.callback(sink.close)
    return sink
