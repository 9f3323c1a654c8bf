"""Landscapes of a finished run, read off its checkpoint: what `pfljax landscape` does.

RUN/landscape/line.npz        t f32[T]; metrics f32[C, T]; cosine, ... f32[C]
RUN/landscape/line.csv        a row a point and metric: mean and std over clients
RUN/figures/landscape_line.*  PNG and PDF
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax import assess, folder, metrics, tree
from pfljax.build import Simulation
from pfljax.data import Federation
from pfljax.export import load_state
from pfljax.landscape.figures import draw_line
from pfljax.landscape.lines import Between, Line, barrier, between, flat_range, line
from pfljax.landscape.lines import midpoint as middle
from pfljax.population import population
from pfljax.report import write_run_report
from pfljax.report.formats import csv_text
from pfljax.report.runs import read_run
from pfljax.report.style import save_figure
from pfljax.types import RunState, Task

KINDS = ("line",)
TABLE = ("accuracy", "loss")
HEADS = ("barrier", "barrier max", "flat range", "midpoint", "ensemble")


class RunLine(NamedTuple):
    """Lines between the endpoints of all C clients of a run, on their test rows."""

    line: Line  # metrics f32[C, T]
    between: Between  # f32[C]
    size: np.ndarray  # i32[C], test rows
    about: str  # the run in words


def run_line(
    path: str | Path,
    *,
    points: int = 11,
    federation: Federation | None = None,
    task: Task | None = None,
) -> RunLine:
    """The line between the two endpoints of every client of a finished run.

    Clients that never took part may have two equal endpoints: their line is a point.

    Args:
      path: the run folder.
      points: T, even places from 0 to 1; odd, so that the midpoint is one.
      federation, task: those that the run was given in Python.

    Raises:
      ValueError, FolderError: `path` is no finished run, its method has no endpoints,
        or `points` is even or less than 3.
    """
    if points < 3 or points % 2 == 0:
        raise ValueError(
            f"points is {points}; expected an odd number, 3 or more: the midpoint "
            "is one of them"
        )
    path = Path(path)
    name = read_run(path).config["algorithm"]
    sim, federation, state = load_state(path, federation, task)
    if sim.setting.algorithm.endpoints is None:
        raise ValueError(
            f"{path} is a run of {name!r}, which has no endpoints, so there is no line "
            "to judge; choose a run of a method that mixes two models, such as superfed"
        )
    t = np.linspace(0, 1, points, dtype=np.float32)
    ids, rows = np.arange(federation.num_clients), federation.test
    states = _states(path, sim, state)
    judge = partial(_judge, sim, t)
    found = assess.in_blocks(judge, state, sim, states, ids, (rows,))
    along = {m: found.pop(m) for m in metrics.METRICS}
    ensemble = {m: found.pop(f"ensemble/{m}") for m in metrics.METRICS}
    told = f"{name}, round {int(state.round)}"
    size = np.asarray(rows.size)
    return RunLine(Line(t, along), Between(ensemble, **found), size, told)


def _states(path: Path, sim: Simulation, state: RunState) -> Callable[..., Any]:
    """ids -> the stacked states of these clients, wherever they are stored."""
    given = folder.read_config(path), path, int(state.round), print
    held = population(sim, *given, writable=False).states
    return held or (lambda ids: tree.take(state.clients, ids))


def _judge(sim: Simulation, t: Any, state: RunState, clients: Any, ids: Any, rows: Any):
    """Arrays [len(ids), ...] by name; `clients` may be padded behind."""
    clients = jax.tree.map(lambda leaf: leaf[: len(ids)], clients)
    a, b = _ends(sim.setting.algorithm.endpoints, state.server, clients)
    size = sim.setting.local.batch_size
    found = line(sim.task, a, b, rows, t=t, batch_size=size).metrics
    beside = between(sim.task, a, b, rows, batch_size=size)
    ensemble = {f"ensemble/{m}": values for m, values in beside.ensemble.items()}
    more = {k: v for k, v in beside._asdict().items() if k != "ensemble"}
    return found | ensemble | more


@partial(jax.jit, static_argnums=0)
def _ends(endpoints, server, clients):
    """Both endpoints of stacked clients, each stacked [C, ...]."""
    return jax.vmap(lambda client: endpoints(server, client))(clients)


def write_line(path: Path, found: RunLine, tolerance: float = 0.01) -> str:
    """Writes the files of a run's lines; the table to print."""
    out = path / "landscape"
    out.mkdir(exist_ok=True)
    ensemble = {f"ensemble/{m}": v for m, v in found.between.ensemble.items()}
    arrays = {"t": found.line.t, "test_size": found.size, **found.line.metrics}
    more = found.between._asdict() | ensemble
    del more["ensemble"]
    folder.write_arrays(out / "line.npz", arrays | more)
    part = out / "line.csv.part"
    part.write_text(csv_text(_rows(found)))
    part.replace(out / "line.csv")
    (path / "figures").mkdir(exist_ok=True)
    figure = draw_line({found.about: found.line}, "accuracy")
    save_figure(figure, path / "figures" / "landscape_line")
    return table(found, tolerance)


def _rows(found: RunLine) -> list[list[Any]]:
    """The lines of line.csv; a figure that is not finite is left empty."""
    rows: list[list[Any]] = [["t", "metric", "mean", "std"]]
    for at, t in enumerate(found.line.t):
        for name, values in found.line.metrics.items():
            told = metrics.summarise(values[:, at], found.size, name)
            rows.append([f"{t:g}", name, told["mean"], told["std"]])
    return rows


def table(found: RunLine, tolerance: float) -> str:
    """Means over clients with test rows, as text of a few lines."""
    between, count = found.between, len(found.size)
    moved = int((between.distance > 0).sum())
    lines = [
        f"{found.about}: the line between the two endpoints of {count} clients "
        f"({count - moved} with equal endpoints), on test rows, means over clients",
        f"{'':10}" + "".join(f"{head:>13}" for head in HEADS),
    ]
    for name in TABLE:
        walls = barrier(found.line, name)
        values = (
            _mean(walls, found),
            _number(metrics.summarise(walls, found.size, name)["max"]),
            _mean(flat_range(found.line, name, tolerance), found),
            _mean(middle(found.line, name), found),
            _mean(between.ensemble[name], found),
        )
        lines.append(f"{name:10}" + "".join(f"{value:>13}" for value in values))
    told = ("cosine", "distance", "total_variation")
    facts = [f"{n.replace('_', ' ')} {_mean(getattr(between, n), found)}" for n in told]
    return "\n".join([*lines, f"{', '.join(facts)}; flat: within {tolerance:g}"])


def _mean(values: np.ndarray, found: RunLine) -> str:
    return _number(metrics.summarise(values, found.size)["mean"])


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"


def landscape(
    path: Path, kind: str = "line", points: int = 11, tolerance: float = 0.01
) -> str:
    """Computes and writes the landscape `kind` of a run; what to print.

    Raises:
      ValueError: the kind is unknown, `tolerance`, of the flat range, is negative; and
        what `run_line` raises.
    """
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; known: {', '.join(KINDS)}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance is {tolerance}; expected 0 or more")
    told = write_line(path, run_line(path, points=points), tolerance)
    write_run_report(path)  # its page shows the figure
    files = f"{path}/landscape/{kind}.csv and {path}/figures/landscape_{kind}.png"
    return f"{told}\nsee {files}"
