"""Surfaces of a finished run: pairs of clients, planes, curvature, the way to the end.

Each function takes a run folder and returns what `pfljax landscape` writes and prints.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from pfljax.core import tree
from pfljax.landscape.curvature import density, eigen, trace
from pfljax.landscape.figures import (
    draw_barriers,
    draw_clients,
    draw_pairs,
    draw_planes,
    draw_spectrum,
    draw_surface,
)
from pfljax.landscape.lines import barrier, line
from pfljax.landscape.of_runs.models import Finished
from pfljax.landscape.pairs import pairs
from pfljax.landscape.planes import (
    Plane,
    around,
    plane,
    pooled,
    principal,
    random_direction,
)
from pfljax.landscape.sharpness import sharpness

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 200  # clients in a matrix of pairs: 20,100 lines
RISE = 0.5  # of the loss above the center's: the area below is told
PART = 0.1  # of the model's norm: what an eigenvector is scaled to
RHO = 0.05  # radius of the ball of SAM
TOLD = ("loss", "accuracy")


class Found(NamedTuple):
    """A landscape of a run."""

    arrays: dict[str, np.ndarray]
    rows: list[list[Any]]  # of a table, the first its head
    figures: dict[str, "Figure"]  # by the end of the file's name
    text: str  # to print


def pairs_of(path: Path, points: int = 3) -> Found:
    """Lines between the personal models of all pairs of clients, on both's test rows.

    Raises:
      ValueError: there are more than `MOST` clients.
    """
    run = Finished(path)
    count = run.federation.num_clients
    if count < 2:
        raise ValueError(f"{path} has one client; pairs need two or more")
    if count > MOST:
        raise ValueError(
            f"{path} has {count} clients, so {count * (count - 1) // 2} pairs; at most "
            f"{MOST} clients are judged: call landscape.pairs on those that you choose"
        )
    size = run.sim.setting.local.batch_size
    rows = run.federation.test
    found = pairs(run.task, run.models(), rows, points=points, batch_size=size)
    walls = {name: barrier(found.line, name) for name in TOLD}
    i, j = np.triu_indices(count, 1)
    columns = {f"{name} barrier": wall[i, j] for name, wall in walls.items()}
    columns |= {"cosine": found.cosine[i, j], "distance": found.distance[i, j]}
    table = [["client", "other", *columns], *zip(i, j, *columns.values(), strict=True)]
    kept = _finite(columns)
    told = [f"{k} {v[kept].mean():.4f}" for k, v in columns.items() if kept.any()]
    apart = {"cosine": found.cosine, "distance": found.distance}
    return Found(
        {f"barrier/{name}": wall for name, wall in walls.items()} | apart,
        [list(row) for row in table],
        {"": draw_pairs(found, "loss")},
        f"{run.about}: {len(i)} pairs of {count} clients' personal models, on the test "
        f"rows of both; means over pairs, {kept.sum()} of {len(i)} finite: "
        f"{', '.join(told) or 'none'}",
    )


def plane_of(path: Path, points: int = 21) -> Found:
    """The plane of two random directions around the server's model, on all test rows.

    Directions are normalised filter by filter (Li et al., 2018), the same draws for
    every run; both axes go from -1 to 1.
    """
    run = Finished(path)
    center = run.server()
    u, v = (random_direction(jax.random.key(s), center, run.network) for s in (0, 1))
    found = _judged(run, center, u, v, points)
    return _of_plane(run, found, "random directions, normalised by filter", {})


def hessian_of(path: Path, points: int = 11) -> Found:
    """Curvature of the pooled training loss at the server's model, and its plane.

    The plane is that of the two leading eigenvectors, each scaled to a tenth of the
    model's norm, on the test rows.
    """
    run = Finished(path)
    center, rows = run.server(), pooled(run.federation.train)
    keys = jax.random.split(jax.random.key(0), 3)
    given = run.task, center, rows
    leading = eigen(*given, keys[0])
    curved, spectrum = trace(*given, keys[1]), density(*given, keys[2])
    steep = sharpness(*given, rho=RHO)
    scale = PART * float(tree.square_norm(center)) ** 0.5
    u, v = (
        jax.tree.map(lambda leaf, i=i: scale * leaf[i], leading.vectors) for i in (0, 1)
    )
    found = _judged(run, center, u, v, points)
    told = (
        f"eigenvalues {leading.values[0]:.4g}, {leading.values[1]:.4g} (residuals "
        f"{leading.residuals[0]:.1g}, {leading.residuals[1]:.1g}), trace "
        f"{curved.value:.4g} ± {curved.error:.2g}, the loss rises by {steep.rise:.4g} "
        f"within {RHO} (SAM), all of the training loss"
    )
    arrays = {
        "eigenvalues": leading.values, "trace": curved.value, "rise": steep.rise,
        "spectrum/grid": spectrum.grid, "spectrum/density": spectrum.density,
    }  # fmt: skip
    surface = _of_plane(
        run, found, "the two leading eigenvectors of the Hessian", arrays
    )
    drawn = draw_spectrum({run.label: spectrum}, {run.label: leading.values})
    figures = surface.figures | {"_spectrum": drawn}
    return surface._replace(figures=figures, text=f"{surface.text}\n{told}")


def curvature_of(path: Path) -> Found:
    """How sharp each client's personal model is, on its own training rows."""
    run = Finished(path)
    rows, keys = run.federation.train, jax.random.split(jax.random.key(0))
    given = run.task, run.models(), rows
    leading = eigen(*given, keys[0], top=1)
    columns = {
        "rows": np.asarray(rows.size),
        "greatest eigenvalue": leading.values[:, 0],
        "residual": leading.residuals[:, 0],
        "trace": trace(*given, keys[1]).value,
        "rise": sharpness(*given, rho=RHO).rise,
    }
    told = {name: columns[name] for name in ("greatest eigenvalue", "trace", "rise")}
    kept = _finite(told)
    means = ", ".join(
        f"{name} {v.mean():.4g} ({v.min():.4g} to {v.max():.4g})"
        for name, v in ((name, v[kept]) for name, v in told.items() if kept.any())
    )
    table = zip(range(len(columns["rows"])), *columns.values(), strict=True)
    return Found(
        columns,
        [["client", *columns], *map(list, table)],
        {"": draw_clients(told)},
        f"{run.about}: the personal models of {len(columns['rows'])} clients, each on "
        f"its own training rows; means over clients (least to greatest), {kept.sum()} "
        f"of {len(kept)} finite: {means or 'none'}; the rise is of the loss, within "
        f"{RHO} (SAM)",
    )


def _finite(columns: dict[str, np.ndarray]) -> np.ndarray:
    """The rows of a table whose numbers are all finite, bool[rows]."""
    return np.all([np.isfinite(values) for values in columns.values()], axis=0)


def _judged(run: Finished, center: Any, u: Any, v: Any, points: int) -> Plane:
    if points < 3 or points % 2 == 0:
        raise ValueError(
            f"points is {points}; expected an odd number, 3 or more: the model in the "
            "middle is one of them"
        )
    axis, size = np.linspace(-1, 1, points), run.sim.setting.local.batch_size
    frame, rows = around(center, u, v), pooled(run.federation.test)
    return plane(run.task, frame, rows, alpha=axis, beta=axis, batch_size=size)


def _of_plane(
    run: Finished, found: Plane, axes: str, more: dict[str, np.ndarray]
) -> Found:
    """The plane with `more` arrays; `axes` names its directions."""
    loss = found.metrics["loss"]
    middle = float(loss[len(found.alpha) // 2, len(found.beta) // 2])
    below = float((loss <= middle + RISE).mean())
    places = [(a, b) for a in found.alpha for b in found.beta]
    values = zip(*(metric.ravel() for metric in found.metrics.values()), strict=True)
    rows = [[*place, *row] for place, row in zip(places, values, strict=True)]
    return Found(
        {"alpha": found.alpha, "beta": found.beta, **found.metrics, **more},
        [["alpha", "beta", *found.metrics], *rows],
        {"": draw_planes({run.label: found}), "_surface": draw_surface(found)},
        f"{run.about}: the plane of {axes}, around the server's model, on all test "
        f"rows: loss {middle:.4f} in the middle, at most {RISE} more on "
        f"{100 * below:.0f} % of {loss.size} points",
    )


def training_of(path: Path, points: int = 11) -> Found:
    """The server's way: barriers between each kept round and the last, and its plane.

    Linear mode connectivity along training (Frankle et al., ICML 2020), on all test
    rows; the plane is that of the trajectory's two principal directions.
    """
    if points < 3:
        raise ValueError(f"points is {points}; expected 3 or more")
    run = Finished(path)
    run.server()  # refuses a method without one
    rounds, models = run.history()
    frame, shares = principal(models, [str(r) for r in rounds])
    last = jax.tree.map(lambda leaf: leaf[-1], models)
    rows, size = pooled(run.federation.test), run.sim.setting.local.batch_size
    t = np.linspace(0, 1, points)
    lines = line(run.task, models, last, rows, t=t, batch_size=size)
    walls = {name: barrier(lines, name) for name in TOLD}
    axis = np.linspace(-1.2, 1.2, max(points, 3))
    found = plane(run.task, frame, rows, alpha=axis, beta=axis, batch_size=size)
    ends = {name: lines.metrics[name][:, 0] for name in TOLD}
    columns = {f"{name} barrier": wall for name, wall in walls.items()} | ends
    table = zip(rounds, *columns.values(), strict=True)
    apart = np.flatnonzero(~(walls["accuracy"][:-1] <= 0.01))
    since = rounds[apart[-1] + 1 if len(apart) else 0]
    alone = ", which is the last" * (since == rounds[-1])
    kept = _finite(walls)
    return Found(
        {"round": np.asarray(rounds), **columns, "shares": shares,
         "alpha": found.alpha, "beta": found.beta, **found.metrics},
        [["round", *columns], *map(list, table)],
        {"": draw_barriers(rounds, walls), "_plane": draw_planes({run.label: found})},
        f"{run.about}: lines from the server's model at {len(rounds)} rounds to the "
        f"last, on all test rows, {kept.sum()} of {len(kept)} finite: barriers of the "
        f"loss {walls['loss'][kept].max(initial=0):.4f} at most; from round {since} "
        f"on{alone}, the accuracy is at most .01 below the line; two principal "
        f"directions hold {100 * shares.sum():.0f} % of the trajectory",
    )  # fmt: skip
