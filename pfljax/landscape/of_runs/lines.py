"""Lines of a finished run: between each client's endpoints, or to another run."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax.core.types import RunState, Task
from pfljax.data import Federation
from pfljax.evaluation import metrics
from pfljax.landscape.lines import Between, Line, barrier, between, flat_range, line
from pfljax.landscape.lines import midpoint as middle
from pfljax.landscape.of_runs.models import Finished
from pfljax.simulate import evaluation

TABLE = ("accuracy", "loss")
HEADS = ("barrier", "barrier max", "flat range", "midpoint", "ensemble")


class RunLine(NamedTuple):
    """Lines of all C clients of a run, on their test rows."""

    line: Line  # metrics f32[C, T]
    between: Between  # f32[C]
    size: np.ndarray  # i32[C], test rows
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
      points: T, even places from 0 to 1; odd, so that the midpoint is one.
      other: the folder of a run with the same clients and model, of another method, or
        seed: then from each client's personal model here (t = 0) to that there.
      federation, task: those that the run was given in Python.

    Raises:
      ValueError, FolderError: `path` is no finished run, its method has no endpoints,
        `points` is even or less than 3, or the other run's clients have other rows.
    """
    if points < 3 or points % 2 == 0:
        raise ValueError(
            f"points is {points}; expected an odd number, 3 or more: the midpoint "
            "is one of them"
        )
    run = Finished(path, federation, task)
    t = np.linspace(0, 1, points, dtype=np.float32)
    rows = run.federation.test
    size = np.asarray(rows.size)
    if other is None:
        found, ends = _endpoints(run, t), "the two endpoints"
    else:
        there = Finished(other, federation, task)
        _check_same_rows(run, there)
        a, b, batch = run.models(), there.models(), run.sim.setting.local.batch_size
        found = _along(run.task, a, b, rows, t, batch)
        ends = f"the personal models of this run and of {there.about},"
    along = {m: found.pop(m) for m in metrics.METRICS}
    ensemble = {m: found.pop(f"ensemble/{m}") for m in metrics.METRICS}
    return RunLine(Line(t, along), Between(ensemble, **found), size, run.about, ends)


def _check_same_rows(a: Finished, b: Finished) -> None:
    hashes = [run.federation.manifest.get("sha256") for run in (a, b)]
    sizes = [run.federation.num_clients for run in (a, b)]
    if hashes[0] != hashes[1] or sizes[0] != sizes[1]:
        raise ValueError(
            f"the clients of {b.path} are not those of {a.path}: their rows differ; "
            "choose runs of one data set, partition and seed"
        )


def _endpoints(run: Finished, t: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays [C, ...] by name, of the endpoints' lines, block by block of clients."""
    ends, size = run.ends, run.sim.setting.local.batch_size

    def judge(_: RunState, clients: Any, ids: Any, rows: Any) -> dict[str, np.ndarray]:
        own = jax.tree.map(lambda leaf: leaf[: len(ids)], clients)  # padding behind
        return _along(run.task, *ends(own), rows, t, size)

    ids, rows = np.arange(run.federation.num_clients), run.federation.test
    return evaluation.in_blocks(judge, run.state, run.sim, run.states, ids, (rows,))


def _along(task: Task, a: Any, b: Any, rows: Any, t: Any, batch_size: int) -> Any:
    """Arrays [C, ...] by name, of the lines from a to b."""
    found = line(task, a, b, rows, t=t, batch_size=batch_size).metrics
    beside = between(task, a, b, rows, batch_size=batch_size)
    ensemble = {f"ensemble/{m}": values for m, values in beside.ensemble.items()}
    more = {k: v for k, v in beside._asdict().items() if k != "ensemble"}
    return found | ensemble | more


def arrays(found: RunLine) -> dict[str, np.ndarray]:
    """What line.npz holds."""
    ensemble = {f"ensemble/{m}": v for m, v in found.between.ensemble.items()}
    more = found.between._asdict() | ensemble
    del more["ensemble"]
    return {"t": found.line.t, "test_size": found.size, **found.line.metrics, **more}


def rows(found: RunLine) -> list[list[Any]]:
    """The lines of line.csv."""
    rows: list[list[Any]] = [["t", "metric", "mean", "std"]]
    for at, t in enumerate(found.line.t):
        for name, values in found.line.metrics.items():
            told = metrics.summarise(values[:, at], found.size, name)
            rows.append([f"{t:g}", name, told["mean"], told["std"]])
    return rows


def table(found: RunLine, tolerance: float) -> str:
    """Means over clients with test rows, as text of a few lines.

    A mean over one that is not finite is not; the head says how many losses are.
    """
    between, count = found.between, len(found.size)
    loss = found.line.metrics["loss"][found.size > 0]
    equal, finite = (between.distance == 0).sum(), np.isfinite(loss).all(1).sum()
    lines = [
        f"{found.about}: the line between {found.ends} of {count} clients "
        f"({equal} with equal endpoints), on test rows, means over clients, of which "
        f"{finite} of {len(loss)} have a finite loss",
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
