"""Landscapes over the clients of a finished run: between pairs, and around each.

Each function takes a run folder and returns what `pfljax landscape` writes and prints.
"""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from pfljax.landscape.barriers import barrier
from pfljax.landscape.curvature import eigen, trace
from pfljax.landscape.curvature_figures import draw_clients
from pfljax.landscape.figures import draw_pairs
from pfljax.landscape.finished import Finished, collect
from pfljax.landscape.kinds.record import METRICS, RHO, Landscape, finite_rows
from pfljax.landscape.lines import Line
from pfljax.landscape.pairs import Pairs, pairs
from pfljax.landscape.sharpness import sharpness

SHARPNESSES = ("greatest eigenvalue", "trace", "rise")
MOST = 200  # clients in a matrix of pairs: 20,100 lines


def compute_pairs(path: Path, points: int = 3) -> Landscape:
    """Lines between the personal models of all pairs of clients, on both's test rows.

    Of several architectures, between clients of one; the others have NaN.

    Raises:
      ValueError: there are more than `MOST` clients, or no two of one architecture.
    """
    run = Finished(path)
    count = run.federation.num_clients
    _check_count(path, count)
    parts = [part for part in run.architectures() if len(part.ids) > 1]
    if not parts:
        raise ValueError(
            f"{path} has no two clients of one architecture, and models of different "
            "ones lie in no common space, with no line between them; choose the kind "
            "curvature, or a run of fewer models"
        )
    result = _join(count, [(part.ids, _pairs(part, points)) for part in parts])
    barriers = {name: barrier(result.line, name) for name in METRICS}
    # Without the diagonal: a model's line to itself is a point.
    i, j = _find_pairs(count, parts)
    columns = {f"{name} barrier": values[i, j] for name, values in barriers.items()}
    columns["cosine"] = result.cosine[i, j]
    columns["distance"] = result.distance[i, j]
    table = zip(i, j, *columns.values(), strict=True)
    # Pairs with a diverged model are counted, and in no mean.
    finite = finite_rows(columns)
    means = [
        f"{name} {values[finite].mean():.4f}"
        for name, values in columns.items()
        if finite.any()
    ]
    arrays = {f"barrier/{name}": values for name, values in barriers.items()}
    arrays["cosine"] = result.cosine
    arrays["distance"] = result.distance
    return Landscape(
        arrays=arrays,
        rows=[["client", "other", *columns], *map(list, table)],
        figures={"": draw_pairs(result, "loss")},
        text=f"{run.about}: {len(i)} pairs of {count} clients' personal models, "
        f"{_which(run)}on the test rows of both; means over pairs, {finite.sum()} of "
        f"{len(i)} finite: {', '.join(means) or 'none'}",
    )


def _pairs(run: Finished, points: int) -> Pairs:
    """Between the clients of one architecture."""
    return pairs(
        run.task,
        run.models(),
        run.federation.test,
        points=points,
        batch_size=run.batch_size,
    )


def _join(count: int, parts: list[tuple[np.ndarray, Pairs]]) -> Pairs:
    """The pairs of all clients, of those of each architecture; NaN between two."""

    def square(values: Callable[[Pairs], np.ndarray]) -> np.ndarray:
        first = values(parts[0][1])
        among = np.full((count, count, *first.shape[2:]), np.nan, first.dtype)
        for ids, part in parts:
            among[np.ix_(ids, ids)] = values(part)
        return among

    line = parts[0][1].line
    metrics = {
        name: square(lambda part, name=name: part.line.metrics[name])
        for name in line.metrics
    }
    return Pairs(
        line=Line(t=line.t, metrics=metrics),
        cosine=square(lambda part: part.cosine),
        distance=square(lambda part: part.distance),
    )


def _find_pairs(count: int, parts: list[Finished]) -> tuple[np.ndarray, np.ndarray]:
    """The pairs i < j of clients of one architecture."""
    is_pair = np.zeros((count, count), bool)
    for part in parts:
        is_pair[np.ix_(part.ids, part.ids)] = True
    i, j = np.nonzero(np.triu(is_pair, 1))
    return i, j


def _which(run: Finished) -> str:
    number = len(run.architectures())
    return "" if number == 1 else f"of one of {number} architectures each, "


def _check_count(path: Path, count: int) -> None:
    if count < 2:
        raise ValueError(f"{path} has one client; pairs need two or more")
    if count > MOST:
        raise ValueError(
            f"{path} has {count} clients, so {count * (count - 1) // 2} pairs; at most "
            f"{MOST} clients are judged: call landscape.pairs on those that you choose"
        )


def compute_curvature(path: Path) -> Landscape:
    """How sharp each client's personal model is, on its own training rows."""
    run = Finished(path)
    columns = collect(run, _curvature)
    # What is drawn and averaged; the table has the residual and the rows too.
    sharpnesses = {name: columns[name] for name in SHARPNESSES}
    finite = finite_rows(sharpnesses)
    means = [
        _mean_and_span(name, values[finite])
        for name, values in sharpnesses.items()
        if finite.any()
    ]
    count = len(columns["rows"])
    table = zip(range(count), *columns.values(), strict=True)
    return Landscape(
        arrays=columns,
        rows=[["client", *columns], *map(list, table)],
        figures={"": draw_clients(sharpnesses)},
        text=f"{run.about}: the personal models of {count} clients, each on its own "
        f"training rows; means over clients (least to greatest), {finite.sum()} of "
        f"{count} finite: {', '.join(means) or 'none'}; the rise is of the loss, "
        f"within {RHO} (SAM)",
    )


def _curvature(run: Finished) -> dict[str, np.ndarray]:
    """Arrays [C] by name, of clients of one architecture."""
    models = run.models()
    rows = run.federation.train
    eigen_key, trace_key = jax.random.split(jax.random.key(0))
    leading = eigen(
        run.task,
        models,
        rows,
        eigen_key,
        top=1,
    )
    traces = trace(run.task, models, rows, trace_key)
    steepness = sharpness(run.task, models, rows, rho=RHO)
    return {
        "rows": np.asarray(rows.size),
        "greatest eigenvalue": leading.values[:, 0],
        "residual": leading.residuals[:, 0],
        "trace": traces.value,
        "rise": steepness.rise,
    }


def _mean_and_span(name: str, values: np.ndarray) -> str:
    least = values.min()
    greatest = values.max()
    return f"{name} {values.mean():.4g} ({least:.4g} to {greatest:.4g})"
