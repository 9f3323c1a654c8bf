"""Landscapes over the clients of a finished run: between pairs, and around each."""

from pathlib import Path

import jax
import numpy as np

from pfljax.landscape.barriers import barrier
from pfljax.landscape.curvature import eigen, trace
from pfljax.landscape.curvature_figures import draw_clients
from pfljax.landscape.figures import draw_pairs
from pfljax.landscape.finished import Finished, collect
from pfljax.landscape.kinds.record import METRICS, RHO, Landscape, find_finite
from pfljax.landscape.lines import Line
from pfljax.landscape.pairs import Pairs, pairs
from pfljax.landscape.sharpness import sharpness
from pfljax.report.frames import make_frame

COLUMNS = ("train_size", "greatest eigenvalue", "residual", "trace", "rise")
SHARPNESSES = ("greatest eigenvalue", "trace", "rise")  # are drawn and averaged
MOST = 200  # clients in a matrix of pairs: 20,100 lines


def compute_pairs(path: Path, points: int) -> Landscape:
    """Lines between the personal models of all pairs of clients.

    They are evaluated on the test examples of both. Pairs of clients with different
    architectures have NaN.

    Raises:
      ValueError: there are more than `MOST` clients, or no two of one architecture.
    """
    run = Finished(path)
    count = run.federation.num_clients
    _check_count(path, count)
    parts = [part for part in run.architectures() if len(part.ids) > 1]
    if not parts:
        raise ValueError(
            f"{path} has no two clients of one architecture, and there is no line "
            "between two architectures; choose the kind curvature, or another run"
        )
    result = _join(count, [(part.ids, _pairs(part, points)) for part in parts])
    barriers = {name: barrier(result.line, name) for name in METRICS}
    # Without the diagonal: a model's line to itself is a point.
    i, j = _find_pairs(count, parts)
    columns = {f"{name} barrier": values[i, j] for name, values in barriers.items()}
    columns["cosine"] = result.cosine[i, j]
    columns["distance"] = result.distance[i, j]
    # Pairs with a diverged model are counted, but not part of any mean.
    finite = find_finite(columns)
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
        table=make_frame({"client": i, "other": j, **columns}),
        figures={"": draw_pairs(result, "loss")},
        text=f"{run.about}: {len(i)} pairs of {count} clients' personal models, "
        f"{_which(run)}on the test examples of both; means over pairs, "
        f"{finite.sum()} of {len(i)} finite: {', '.join(means) or 'none'}",
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

    def join_squares(*squares: np.ndarray) -> np.ndarray:
        first = squares[0]
        among = np.full((count, count, *first.shape[2:]), np.nan, first.dtype)
        for (ids, _), square in zip(parts, squares, strict=True):
            among[np.ix_(ids, ids)] = square
        return among

    pairs_of_parts = [part for _, part in parts]
    # The positions are not by client.
    t = pairs_of_parts[0].line.t
    squares = [part._replace(line=part.line.metrics) for part in pairs_of_parts]
    joined = jax.tree.map(join_squares, *squares)
    return joined._replace(line=Line(t=t, metrics=joined.line))


def _find_pairs(count: int, parts: list[Finished]) -> tuple[np.ndarray, np.ndarray]:
    """The pairs i < j of clients of one architecture."""
    is_pair = np.zeros((count, count), bool)
    for part in parts:
        is_pair[np.ix_(part.ids, part.ids)] = True
    i, j = np.nonzero(np.triu(is_pair, 1))
    return i, j


def _which(run: Finished) -> str:
    number = len(run.architectures())
    return "" if number == 1 else f"within {number} architectures, "


def _check_count(path: Path, count: int) -> None:
    if count < 2:
        raise ValueError(f"{path} has one client; pairs need two or more")
    if count > MOST:
        raise ValueError(
            f"{path} has {count} clients, so {count * (count - 1) // 2} pairs; more "
            f"than {MOST} clients are too many: call landscape.pairs for some of them"
        )


def compute_curvature(path: Path) -> Landscape:
    """How sharp each client's personal model is, on its own training examples."""
    run = Finished(path)
    values = collect(run, _curvature)
    columns: dict[str, np.ndarray] = dict(zip(COLUMNS, values, strict=True))
    sharpnesses = {name: columns[name] for name in SHARPNESSES}
    finite = find_finite(sharpnesses)
    means = [
        _mean_and_span(name, values[finite])
        for name, values in sharpnesses.items()
        if finite.any()
    ]
    count = len(run.ids)
    return Landscape(
        arrays=columns,
        table=make_frame({"client": range(count), **columns}),
        figures={"": draw_clients(sharpnesses)},
        text=f"{run.about}: the personal models of {count} clients, each on its own "
        f"training examples; means over clients (least to greatest), {finite.sum()} "
        f"of {count} finite: {', '.join(means) or 'none'}; the rise is of the loss, "
        f"within {RHO} (SAM)",
    )


def _curvature(run: Finished) -> list[np.ndarray]:
    """`COLUMNS` of clients of one architecture, [C] each."""
    models = run.models()
    train = run.federation.train
    eigen_key, trace_key = jax.random.split(jax.random.key(0))
    leading = eigen(run.task, models, train, eigen_key, top=1)
    traces = trace(run.task, models, train, trace_key)
    steepness = sharpness(run.task, models, train, rho=RHO)
    return [
        np.asarray(train.size),
        leading.values[:, 0],
        leading.residuals[:, 0],
        traces.value,
        steepness.rise,
    ]


def _mean_and_span(name: str, values: np.ndarray) -> str:
    least = values.min()
    greatest = values.max()
    return f"{name} {values.mean():.4g} ({least:.4g} to {greatest:.4g})"
