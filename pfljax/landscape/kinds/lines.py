"""Lines of a finished run: one for each client, between two models of it."""

from typing import Any, NamedTuple

import numpy as np

from pfljax.core import statistics
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import ClientData, Params, Task
from pfljax.evaluation import over_clients
from pfljax.evaluation.metrics import METRICS
from pfljax.landscape.barriers import barrier, flat_range, midpoint
from pfljax.landscape.figures import draw_line
from pfljax.landscape.finished import Finished
from pfljax.landscape.kinds import blocks, record
from pfljax.landscape.kinds.ends import align, choose_ends
from pfljax.landscape.lines import Between, Line, between, line
from pfljax.report.frames import Frame, make_frame
from pfljax.runs.landscape_options import LandscapeOptions

TABLE = ("accuracy", "loss")
HEADS = ("barrier", "barrier max", "flat range", "midpoint", "ensemble")
BESIDE = ("cosine", "distance", "total_variation")
BEFORE = "before/"  # the units were aligned


class RunLine(NamedTuple):
    """Lines of all C clients of a run."""

    line: Line  # metrics f32[C, T]
    between: Between  # f32[C]
    size: np.ndarray  # i32[C], number of examples of each client's line
    about: str  # the run in words
    ends: tuple[str, str]  # which models lie there
    before: Line | None = None  # the lines before the units were aligned


def measure(run: Finished, options: LandscapeOptions, store: blocks.Store) -> RunLine:
    """The lines of a run, by blocks of clients."""
    t = record.place_on_line(options)
    _check_statistics(run, options)
    find_ends, names = choose_ends(run, options)
    find_rows = record.choose_rows(run, options.rows)

    def evaluate(part: Finished) -> dict[str, np.ndarray]:
        a, b = find_ends(part)
        rows = find_rows(part)
        given = {"t": t, "train": rows.train, "batch_size": part.batch_size}
        given["statistics"] = options.statistics or "recompute"
        before = _evaluate(part.task, a, b, rows.data, **given)
        if not options.align:
            return before
        after = _evaluate(part.task, a, align(part, b, a), rows.data, **given)
        return after | {BEFORE + name: before[name] for name in METRICS}

    found = blocks.compute_clients(store, "line", run, evaluate)
    beside = {name: found[name] for name in BESIDE}
    ensemble = {name: found[f"ensemble/{name}"] for name in METRICS}
    before = None
    if BEFORE + METRICS[0] in found:
        before = Line(t, {name: found[BEFORE + name] for name in METRICS})
    size = np.ravel(find_rows(run).data.size)
    return RunLine(
        line=Line(t=t, metrics={name: found[name] for name in METRICS}),
        between=Between(ensemble=ensemble, **beside),
        size=np.broadcast_to(size, len(run.ids)),
        about=run.about,
        ends=names,
        before=before,
    )


def _check_statistics(run: Finished, options: LandscapeOptions) -> None:
    """Refuses a choice that would change nothing."""
    running = statistics.has_any(shapes_of_model(run.task))
    if not running and options.statistics in ("recompute", "mix"):
        raise ValueError(
            f"statistics is {options.statistics!r}, and the model of {run.path} has no "
            "running statistics; leave it out, or choose repair"
        )


def _evaluate(
    task: Task, a: Params, b: Params, data: ClientData, **given: Any
) -> dict[str, np.ndarray]:
    """Metrics [C, T] along the lines from a to b, and how the ends differ [C]."""
    along = line(task, a, b, data, **given)
    beside = between(task, a, b, data, batch_size=given["batch_size"])
    ensemble = {f"ensemble/{name}": v for name, v in beside.ensemble.items()}
    return along.metrics | ensemble | {name: getattr(beside, name) for name in BESIDE}


def compute_lines(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> record.Landscape:
    """The lines of a run, with flat ranges of the tolerance."""
    result = measure(run, options, store)
    first, second = result.ends
    drawn = {result.about: result.line}
    arrays = {"t": result.line.t, "test_size": result.size, **result.line.metrics}
    arrays |= {f"ensemble/{name}": v for name, v in result.between.ensemble.items()}
    arrays |= {name: getattr(result.between, name) for name in BESIDE}
    points = record.describe_line(result.line.t)
    rows = f"{points}, {record.describe_rows(run, options)}"
    text = _describe(result, options, rows)
    if result.before is not None:
        drawn = {"units aligned": result.line, "as they are": result.before}
        arrays |= {BEFORE + name: v for name, v in result.before.metrics.items()}
        text += f"\nunits aligned: {_compare(result, result.before)}"
    shown = (options.metric,) if options.metric else TABLE
    figure = draw_line(drawn, shown, (first, second))
    return record.Landscape(
        arrays=arrays,
        table=_make_table(result),
        figures={"": figure},
        text=text,
        facts=f"{' and '.join(shown).capitalize()} from {first} to {second}: {rows}.",
    )


def _compare(result: RunLine, before: Line) -> str:
    """The mean barriers before and after, in words."""
    words = [
        f"{name} barrier {_mean(barrier(before, name), result)} before and "
        f"{_mean(barrier(result.line, name), result)} after"
        for name in TABLE
    ]
    return ", ".join(words)


def _make_table(result: RunLine) -> Frame:
    """Mean and standard deviation over clients at each position."""
    table = []
    for i, t in enumerate(result.line.t):
        for name, values in result.line.metrics.items():
            summary = over_clients.summarise(values[:, i], result.size, name)
            table.append([f"{t:g}", name, summary["mean"], summary["std"]])
    return make_frame(table, ["t", "metric", "mean", "std"])


def _describe(result: RunLine, options: LandscapeOptions, rows: str) -> str:
    """Means over clients with examples, as text of a few lines.

    The first line says how many losses are finite; a mean over others is not.
    """
    tolerance = options.tolerance or 0.0
    first, second = result.ends
    # A client without examples has no loss, and does not count as diverged.
    loss = result.line.metrics["loss"][result.size > 0]
    equal = (result.between.distance == 0).sum()
    alike = f", of which {equal} have two equal ends" if equal else ""
    finite = np.isfinite(loss).all(1).sum()
    lines = [
        f"{result.about}: the lines of {len(result.size)} clients from {first} to "
        f"{second}{alike}, {rows}; means over clients, of which {finite} of "
        f"{len(loss)} have a finite loss",
        _format_row("", HEADS),
    ]
    lines += [_format_row(name, _summarise(result, name, tolerance)) for name in TABLE]
    facts = [
        f"{name.replace('_', ' ')} {_mean(getattr(result.between, name), result)}"
        for name in BESIDE
    ]
    flat = f"flat range: the share of the line within {tolerance:g} of its best point"
    return "\n".join([*lines, f"{', '.join(facts)}; {flat}"])


def _summarise(result: RunLine, name: str, tolerance: float) -> tuple[str, ...]:
    """The cells below `HEADS` for a metric."""
    barriers = barrier(result.line, name)
    highest = over_clients.summarise(barriers, result.size, name)["max"]
    return (
        _mean(barriers, result),
        _number(highest),
        _mean(flat_range(result.line, name, tolerance), result),
        _mean(midpoint(result.line, name), result),
        _mean(result.between.ensemble[name], result),
    )


def _format_row(name: str, cells: tuple[str, ...]) -> str:
    return f"{name:10}" + "".join(f"{cell:>13}" for cell in cells)


def _mean(values: np.ndarray, result: RunLine) -> str:
    return _number(over_clients.summarise(values, result.size)["mean"])


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"
