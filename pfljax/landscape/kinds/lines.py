"""Lines of a finished run: between each client's endpoints, or to another run."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from pfljax.core.communication import shapes_of_model
from pfljax.core.types import Params, Task
from pfljax.data import Federation
from pfljax.engine.contract import first_change
from pfljax.evaluation import over_clients
from pfljax.evaluation.metrics import METRICS
from pfljax.landscape.barriers import barrier, flat_range, midpoint
from pfljax.landscape.figures import draw_line
from pfljax.landscape.finished import Finished, collect
from pfljax.landscape.kinds.record import Landscape
from pfljax.landscape.lines import Between, Line, between, line
from pfljax.report.frames import Frame, make_frame
from pfljax.runs import claims, folder

TABLE = ("accuracy", "loss")
HEADS = ("barrier", "barrier max", "flat range", "midpoint", "ensemble")
BESIDE = ("cosine", "distance", "total_variation")


class RunLine(NamedTuple):
    """Lines of all C clients of a run, on their test examples."""

    line: Line  # metrics f32[C, T]
    between: Between  # f32[C]
    size: np.ndarray  # i32[C], number of test examples
    about: str  # the run in words
    ends: str  # which models lie at the ends


def run_line(
    path: str | Path,
    *,
    points: int = 11,
    other: str | Path | None = None,
    federation: Federation | None = None,
    task: Task | None = None,
) -> RunLine:
    """The line between the two endpoints of every client of a finished run.

    Clients that never took part may have two equal endpoints: their line is a point.

    Args:
      path: the run folder.
      points: T, evenly spaced positions from 0 to 1; odd, to include the midpoint.
      other: the folder of a run with the same clients and model, but another method or
        seed. If given, lines go from each client's personal model in this run (t = 0)
        to that in the other run.
      federation, task: those that were given to the run in Python.

    Raises:
      ValueError, FolderError: `path` is no finished run, its method has no endpoints,
        `points` is even or less than 3, or the other run has other clients or models.
    """
    if points < 3 or points % 2 == 0:
        raise ValueError(
            f"points is {points}; expected an odd number, 3 or more, to include the "
            "midpoint"
        )
    run = Finished(path, federation, task)
    t = np.linspace(0, 1, points, dtype=np.float32)
    if other is None:
        along, beside = collect(run, lambda part: _compute(part, *part.endpoints(), t))
        ends = "the two endpoints"
    else:
        other_run = Finished(other, federation, task)
        along, beside = _join_runs(run, other_run, t)
        ends = f"the personal models of this run and of {other_run.about},"
    return RunLine(
        line=Line(t=t, metrics={name: along[name] for name in METRICS}),
        between=beside,
        size=np.asarray(run.federation.test.size),
        about=run.about,
        ends=ends,
    )


def _compute(run: Finished, a: Params, b: Params, t: np.ndarray) -> tuple:
    """(metrics [C, T] along the lines from a to b, their `Between`)."""
    test = run.federation.test
    along = line(run.task, a, b, test, t=t, batch_size=run.batch_size)
    beside = between(run.task, a, b, test, batch_size=run.batch_size)
    return along.metrics, beside


def _join_runs(run: Finished, other: Finished, t: np.ndarray) -> tuple:
    """Computes lines between the personal models of both runs."""
    _check_same_clients(run, other)
    others = {tuple(part.ids): part for part in other.architectures()}

    def compute(part: Finished) -> tuple:
        twin = others.get(tuple(part.ids))
        if twin is None or first_change(
            shapes_of_model(part.task), shapes_of_model(twin.task)
        ):
            raise ValueError(
                f"clients have other models in {other.path} than in {run.path}, and "
                "there is no line between two architectures; choose runs of equal "
                "models"
            )
        return _compute(part, part.models(), twin.models(), t)

    return collect(run, compute)


def _check_same_clients(run: Finished, other: Finished) -> None:
    # Compares the examples as well, since a user's own data have no name.
    manifests = [folder.read_partition(each.path) for each in (run, other)]
    if not claims.same_clients(*manifests):
        raise ValueError(
            f"the clients of {other.path} are not those of {run.path}: their examples "
            "differ; choose runs of one data set, partition and seed"
        )


def compute_lines(
    path: Path, points: int, tolerance: float, other: Path | None
) -> Landscape:
    """The lines of a run, with flat ranges of this tolerance."""
    result = run_line(path, points=points, other=other)
    name = result.about
    ends = ("the server's model", "the client's own")
    if other is not None:
        name = f"from {name} to {other.name}"
        ends = (f"models of {path.name}", f"of {other.name}")
    beside = result.between
    arrays = {"t": result.line.t, "test_size": result.size, **result.line.metrics}
    arrays |= {f"ensemble/{name}": v for name, v in beside.ensemble.items()}
    arrays |= {name: getattr(beside, name) for name in BESIDE}
    return Landscape(
        arrays=arrays,
        table=_make_table(result),
        figures={"": draw_line({name: result.line}, "accuracy", ends)},
        text=_describe(result, tolerance),
    )


def _make_table(result: RunLine) -> Frame:
    """Mean and standard deviation over clients at each position."""
    table = []
    for i, t in enumerate(result.line.t):
        for name, values in result.line.metrics.items():
            summary = over_clients.summarise(values[:, i], result.size, name)
            table.append([f"{t:g}", name, summary["mean"], summary["std"]])
    return make_frame(table, ["t", "metric", "mean", "std"])


def _describe(result: RunLine, tolerance: float) -> str:
    """Means over clients with test examples, as text of a few lines.

    The first line says how many losses are finite; a mean over others is not.
    """
    # A client without test examples has no loss, and does not count as diverged.
    loss = result.line.metrics["loss"][result.size > 0]
    equal = (result.between.distance == 0).sum()
    finite = np.isfinite(loss).all(1).sum()
    lines = [
        f"{result.about}: the line between {result.ends} of {len(result.size)} "
        f"clients ({equal} with equal endpoints), on test examples, means over "
        f"clients, of which {finite} of {len(loss)} have a finite loss",
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
