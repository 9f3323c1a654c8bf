"""Lines of a finished run: between each client's endpoints, or to another run."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax.core.types import ClientData, Params, RunState, Task
from pfljax.data import Federation
from pfljax.evaluation import metrics, over_clients
from pfljax.landscape.barriers import barrier, flat_range, midpoint
from pfljax.landscape.finished import Finished, collect
from pfljax.landscape.lines import Between, Line, between, line
from pfljax.runs import claims, folder
from pfljax.simulate import architectures, blocks
from pfljax.simulate.components import resolve_model

TABLE = ("accuracy", "loss")
HEADS = ("barrier", "barrier max", "flat range", "midpoint", "ensemble")
BESIDE = ("cosine", "distance", "total_variation")


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
      points: T, even positions from 0 to 1; odd, so that the midpoint is one.
      other: the folder of a run with the same clients and model, of another method, or
        seed: then from each client's personal model here (t = 0) to that of the other.
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
    # The one view needs a method that mixes two models, the other any two runs.
    if other is None:
        values = collect(run, lambda part: _join_endpoints(part, t))
        ends = "the two endpoints"
    else:
        other_run = Finished(other, federation, task)
        values = _join_runs(run, other_run, t)
        ends = f"the personal models of this run and of {other_run.about},"
    along = {name: values[name] for name in metrics.METRICS}
    ensemble = {name: values[f"ensemble/{name}"] for name in metrics.METRICS}
    return RunLine(
        line=Line(t=t, metrics=along),
        between=Between(
            ensemble=ensemble,
            total_variation=values["total_variation"],
            cosine=values["cosine"],
            distance=values["distance"],
        ),
        size=np.asarray(run.federation.test.size),
        about=run.about,
        ends=ends,
    )


def _join_endpoints(run: Finished, t: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays [C, ...] by name, of the endpoints' lines, block by block of clients."""
    endpoints = run.ends
    batch_size = run.batch_size

    def judge(_: RunState, clients: Any, ids: Any, rows: Any) -> dict[str, np.ndarray]:
        # A block is padded at its end to the length of the others.
        unpadded = jax.tree.map(lambda leaf: leaf[: len(ids)], clients)
        a, b = endpoints(unpadded)
        return _compute(
            run.task,
            a,
            b,
            rows,
            t,
            batch_size,
        )

    rows = (run.federation.test,)
    return blocks.in_blocks(
        judge,
        run.state,
        run.sim,
        run.states,
        run.ids,
        rows,
    )


def _join_runs(
    run: Finished,
    other: Finished,
    t: np.ndarray,
) -> dict[str, np.ndarray]:
    """Arrays [C, ...] by name, of the lines between both runs' personal models."""
    _check_same_rows(run, other)
    _check_same_models(run, other)
    others = {part.ids[0]: part for part in other.architectures()}

    def compute(part: Finished) -> dict[str, np.ndarray]:
        return _compute(
            part.task,
            part.models(),
            others[part.ids[0]].models(),
            part.federation.test,
            t,
            part.batch_size,
        )

    return collect(run, compute)


def _check_same_rows(a: Finished, b: Finished) -> None:
    # Their rows as well as who holds which: rows of one's own have no other name.
    manifests = [folder.read_partition(run.path) for run in (a, b)]
    if not claims.same_clients(*manifests):
        raise ValueError(
            f"the clients of {b.path} are not those of {a.path}: their rows differ; "
            "choose runs of one data set, partition and seed"
        )


def _check_same_models(a: Finished, b: Finished) -> None:
    """Refuses a client of two architectures; of runs of one, `line` compares models."""
    models = []
    for run in (a, b):
        experiment = folder.read_config(run.path)
        input_shape = run.federation.train.examples.x.shape[1:]
        one = [resolve_model(experiment, input_shape)]
        models.append(architectures.list_models(experiment) or one)
    if max(map(len, models)) == 1:
        return
    for client in a.ids.tolist():
        names = [str(of_run[client % len(of_run)]) for of_run in models]
        if names[0] != names[1]:
            raise ValueError(
                f"the model of client {client} is {names[0]} in {a.path} and "
                f"{names[1]} in {b.path}, and models of different architectures lie in "
                "no common space; choose runs of equal models"
            )


def _compute(
    task: Task,
    a: Params,
    b: Params,
    rows: ClientData,
    t: np.ndarray,
    batch_size: int,
) -> dict[str, np.ndarray]:
    """Arrays [C, ...] by name, of the lines from a to b."""
    along = line(
        task,
        a,
        b,
        rows,
        t=t,
        batch_size=batch_size,
    )
    beside = between(
        task,
        a,
        b,
        rows,
        batch_size=batch_size,
    )
    return along.metrics | _name_arrays(beside)


def _name_arrays(beside: Between) -> dict[str, np.ndarray]:
    """The fields by name, those of the ensemble behind "ensemble/"."""
    ensemble = {f"ensemble/{name}": v for name, v in beside.ensemble.items()}
    return ensemble | {name: getattr(beside, name) for name in BESIDE}


def arrays(result: RunLine) -> dict[str, np.ndarray]:
    """What line.npz holds."""
    positions = {"t": result.line.t, "test_size": result.size}
    return positions | result.line.metrics | _name_arrays(result.between)


def rows(result: RunLine) -> list[list[Any]]:
    """The lines of line.csv."""
    table: list[list[Any]] = [["t", "metric", "mean", "std"]]
    for i, t in enumerate(result.line.t):
        for name, values in result.line.metrics.items():
            figures = over_clients.summarise(values[:, i], result.size, name)
            table.append([f"{t:g}", name, figures["mean"], figures["std"]])
    return table


def table(result: RunLine, tolerance: float) -> str:
    """Means over clients with test rows, as text of a few lines.

    A mean over one that is not finite is not; the head says how many losses are.
    """
    # A client without test rows has no loss, and counts as none that diverged.
    loss = result.line.metrics["loss"][result.size > 0]
    equal = (result.between.distance == 0).sum()
    finite = np.isfinite(loss).all(1).sum()
    lines = [
        f"{result.about}: the line between {result.ends} of {len(result.size)} "
        f"clients ({equal} with equal endpoints), on test rows, means over clients, of "
        f"which {finite} of {len(loss)} have a finite loss",
        _table_row("", HEADS),
    ]
    lines += [_table_row(name, _figures(result, name, tolerance)) for name in TABLE]
    facts = [
        f"{name.replace('_', ' ')} {_mean(getattr(result.between, name), result)}"
        for name in BESIDE
    ]
    return "\n".join([*lines, f"{', '.join(facts)}; flat: within {tolerance:g}"])


def _figures(result: RunLine, name: str, tolerance: float) -> tuple[str, ...]:
    """What stands below `HEADS` for a metric."""
    barriers = barrier(result.line, name)
    highest = over_clients.summarise(barriers, result.size, name)["max"]
    return (
        _mean(barriers, result),
        _number(highest),
        _mean(flat_range(result.line, name, tolerance), result),
        _mean(midpoint(result.line, name), result),
        _mean(result.between.ensemble[name], result),
    )


def _table_row(name: str, cells: tuple[str, ...]) -> str:
    return f"{name:10}" + "".join(f"{cell:>13}" for cell in cells)


def _mean(values: np.ndarray, result: RunLine) -> str:
    return _number(over_clients.summarise(values, result.size)["mean"])


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"
