"""Lines of a finished run: one for each client, between two models of it."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.types import ClientData, Params, Task
from pfljax.data import Federation
from pfljax.evaluation import over_clients
from pfljax.evaluation.metrics import METRICS
from pfljax.landscape.barriers import barrier, flat_range, midpoint
from pfljax.landscape.curve_training import train_curve
from pfljax.landscape.curves import curve
from pfljax.landscape.figures import draw_line
from pfljax.landscape.finished import Finished
from pfljax.landscape.kinds import blocks
from pfljax.landscape.kinds.ends import align, choose_ends
from pfljax.landscape.kinds.record import (
    Landscape,
    Rows,
    choose_rows,
    describe_rows,
    place_points,
)
from pfljax.landscape.lines import Between, Line, between, line
from pfljax.report.frames import Frame, make_frame
from pfljax.runs.landscape_options import LandscapeOptions

TABLE = ("accuracy", "loss")
HEADS = ("barrier", "barrier max", "flat range", "midpoint", "ensemble")
BESIDE = ("cosine", "distance", "total_variation")
BEFORE = "before/"  # the units were aligned, or the bend of a curve was trained
WAYS = {"line": ("units aligned", "as they are"), "curve": ("curve", "straight line")}
EPOCHS = 30  # of the bend


class RunLine(NamedTuple):
    """Lines of all C clients of a run."""

    line: Line  # metrics f32[C, T]
    between: Between  # f32[C]
    size: np.ndarray  # i32[C], number of examples of each client's line
    about: str  # the run in words
    ends: tuple[str, str]  # which models lie there
    before: Line | None = None  # the lines before alignment, or without a bend


def run_line(
    path: str | Path,
    *,
    points: int = 11,
    rows: str = "own",
    endpoints: bool = False,
    other: str | Path | None = None,
    federation: Federation | None = None,
    task: Task | None = None,
) -> RunLine:
    """The line from the server's model to each client's personal model.

    Clients that never took part may have two equal ends: their line is a point.

    Args:
      path: the run folder.
      points: T, evenly spaced positions from 0 to 1; the middle is always there.
      rows: evaluate each line on its client's "own" test examples, on "all" test
        examples, or on its client's training examples: "train".
      endpoints: between the two models that the method mixes instead.
      other: the folder of a run with the same clients and model, but another method or
        seed. If given, lines go from each client's personal model in this run (t = 0)
        to that in the other run.
      federation, task: those that were given to the run in Python.

    Raises:
      ValueError, FolderError: `path` is no finished run, it has no such models, there
        are fewer than 3 points, or the other run has other clients or models.
    """
    options = LandscapeOptions(
        points=points,
        rows=rows,  # pyright: ignore[reportArgumentType]
        endpoints=endpoints,
        other=None if other is None else Path(other),
    )
    return measure(Finished(path, federation, task), options, blocks.Store())


def measure(run: Finished, options: LandscapeOptions, store: blocks.Store) -> RunLine:
    """The lines of a run, by blocks of clients."""
    t = place_points(options, 0, 0.5, 1)
    ends = choose_ends(run, options)
    find_rows = choose_rows(run, options.rows)

    def evaluate(part: Finished) -> dict[str, np.ndarray]:
        a, b = ends.find(part)
        rows = find_rows(part)
        before = _evaluate(part, a, b, rows, t)
        if options.align:
            after = _evaluate(part, a, align(part, b, a), rows, t)
        elif options.kind == "curve":
            after = before | _evaluate_curve(part, a, b, rows, t, options.seed or 0)
        else:
            return before
        return after | {BEFORE + name: before[name] for name in METRICS}

    found = blocks.compute_clients(store, options.kind, run, evaluate)
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
        ends=ends.names,
        before=before,
    )


def _evaluate(
    part: Finished, a: Params, b: Params, rows: Rows, t: np.ndarray
) -> dict[str, np.ndarray]:
    """Metrics [C, T] along the lines from a to b, and how the ends differ [C]."""
    batch_size = part.batch_size
    along = line(
        part.task, a, b, rows.data, t=t, train=rows.train, batch_size=batch_size
    )
    beside = between(part.task, a, b, rows.data, batch_size=batch_size)
    ensemble = {f"ensemble/{name}": v for name, v in beside.ensemble.items()}
    return along.metrics | ensemble | {name: getattr(beside, name) for name in BESIDE}


def _evaluate_curve(
    part: Finished, a: Params, b: Params, rows: Rows, t: np.ndarray, seed: int
) -> dict[str, np.ndarray]:
    """Metrics [C, T] along the curves from a to b, trained for each client."""
    # Curves of C clients have C pairs of ends.
    a = jax.tree.map(jnp.broadcast_to, a, jax.tree.map(jnp.shape, b))
    points = train_bend(part, a, b, part.federation.train, seed)
    given = {"train": rows.train, "batch_size": part.batch_size}
    return curve(part.task, points, rows.data, t=t, **given).metrics


def train_bend(
    part: Finished, a: Params, b: Params, train: ClientData, seed: int
) -> Params:
    """The three points of a Bezier curve after `EPOCHS` of the run's local steps."""
    local = part.sim.setting.local._replace(epochs=EPOCHS, steps=None)
    # A block has keys of its own, by its first client.
    key = jax.random.fold_in(jax.random.key(seed), part.ids[0])
    return train_curve(part.task, a, b, train, local, key)


def compute_lines(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> Landscape:
    """The lines of a run, with flat ranges of the tolerance."""
    result = measure(run, options, store)
    first, second = result.ends
    drawn = {result.about: result.line}
    arrays = {"t": result.line.t, "test_size": result.size, **result.line.metrics}
    arrays |= {f"ensemble/{name}": v for name, v in result.between.ensemble.items()}
    arrays |= {name: getattr(result.between, name) for name in BESIDE}
    rows = describe_rows(run, options)
    text = _describe(result, options, rows)
    if result.before is not None:
        after, before = WAYS[options.kind]
        drawn = {after: result.line, before: result.before}
        arrays |= {BEFORE + name: v for name, v in result.before.metrics.items()}
        text += f"\n{after}: {_compare(result, result.before)}"
    figure = draw_line(drawn, options.metric or "accuracy", (first, second))
    return Landscape(
        arrays=arrays,
        table=_make_table(result),
        figures={"": figure},
        text=text,
        facts=f"From {first} to {second}: {rows}.",
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
    finite = np.isfinite(loss).all(1).sum()
    lines = [
        f"{result.about}: from {first} to {second} of {len(result.size)} clients "
        f"({equal} with equal ends), {rows}; means over clients, of which {finite} of "
        f"{len(loss)} have a finite loss",
        _format_row("", HEADS),
    ]
    lines += [_format_row(name, _summarise(result, name, tolerance)) for name in TABLE]
    facts = [
        f"{name.replace('_', ' ')} {_mean(getattr(result.between, name), result)}"
        for name in BESIDE
    ]
    return "\n".join([*lines, f"{', '.join(facts)}; flat: within {tolerance:g}"])


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
