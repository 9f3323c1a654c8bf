"""Planes around the server's model of a finished run, by two choices of directions.

Each function takes a run folder and returns what `pfljax landscape` writes and prints.
"""

from pathlib import Path

import jax
import numpy as np

from pfljax.core import tree
from pfljax.core.types import Params
from pfljax.landscape.curvature import density, eigen, trace
from pfljax.landscape.curvature_figures import draw_spectrum
from pfljax.landscape.figures import draw_planes, draw_surface
from pfljax.landscape.finished import Finished
from pfljax.landscape.frames import around, random_direction
from pfljax.landscape.kinds.record import RHO, Landscape
from pfljax.landscape.planes import Plane, plane, pooled
from pfljax.landscape.sharpness import sharpness

RISE = 0.5  # of the loss above the center's: the text says how much lies below
PART = 0.1  # of the model's norm: what an eigenvector is scaled to


def compute_plane(path: Path, points: int = 21) -> Landscape:
    """The plane of two random directions around the server's model, on all test rows.

    Directions are normalised filter by filter (Li et al., 2018), the same draws for
    every run; both axes go from -1 to 1.
    """
    run = Finished(path)
    center = run.server()
    u, v = (
        random_direction(jax.random.key(seed), center, run.network) for seed in (0, 1)
    )
    grid = _evaluate(run, center, u, v, points)
    return _describe(run, grid, "random directions, normalised by filter", {})


def compute_hessian(path: Path, points: int = 11) -> Landscape:
    """Curvature of the pooled training loss at the server's model, and its plane.

    The plane is that of the two leading eigenvectors, each scaled to a tenth of the
    model's norm, on the test rows.
    """
    run = Finished(path)
    center = run.server()
    rows = pooled(run.federation.train)
    # The same keys for every run: figures of two runs differ by their models alone.
    keys = jax.random.split(jax.random.key(0), 3)
    eigen_key, trace_key, density_key = keys
    leading = eigen(run.task, center, rows, eigen_key)
    curvature = trace(run.task, center, rows, trace_key)
    spectrum = density(run.task, center, rows, density_key)
    steepness = sharpness(run.task, center, rows, rho=RHO)
    length = PART * float(tree.square_norm(center)) ** 0.5
    # An eigenvector of norm 1 would reach far beyond what the Hessian describes.
    u = _scale_vector(leading.vectors, 0, length)
    v = _scale_vector(leading.vectors, 1, length)
    grid = _evaluate(run, center, u, v, points)
    arrays = {
        "eigenvalues": leading.values,
        "trace": curvature.value,
        "rise": steepness.rise,
        "spectrum/grid": spectrum.grid,
        "spectrum/density": spectrum.density,
    }
    surface = _describe(
        run, grid, "the two leading eigenvectors of the Hessian", arrays
    )
    drawn = draw_spectrum({run.label: spectrum}, {run.label: leading.values})
    text = (
        f"eigenvalues {leading.values[0]:.4g}, {leading.values[1]:.4g} (residuals "
        f"{leading.residuals[0]:.1g}, {leading.residuals[1]:.1g}), trace "
        f"{curvature.value:.4g} ± {curvature.error:.2g}, the loss rises by "
        f"{steepness.rise:.4g} within {RHO} (SAM), all of the training loss"
    )
    return surface._replace(
        figures=surface.figures | {"_spectrum": drawn},
        text=f"{surface.text}\n{text}",
    )


def _scale_vector(vectors: Params, index: int, length: float) -> Params:
    return jax.tree.map(lambda leaf: length * leaf[index], vectors)


def _evaluate(
    run: Finished,
    center: Params,
    u: Params,
    v: Params,
    points: int,
) -> Plane:
    if points < 3 or points % 2 == 0:
        raise ValueError(
            f"points is {points}; expected an odd number, 3 or more: the model in the "
            "middle is one of them"
        )
    axis = np.linspace(-1, 1, points)
    return plane(
        run.task,
        around(center, u, v),
        pooled(run.federation.test),
        alpha=axis,
        beta=axis,
        batch_size=run.batch_size,
    )


def _describe(
    run: Finished,
    grid: Plane,
    axes: str,
    more: dict[str, np.ndarray],
) -> Landscape:
    """The plane with `more` arrays; `axes` names its directions."""
    loss = grid.metrics["loss"]
    # Both axes have an odd number of points around the model.
    row = len(grid.alpha) // 2
    column = len(grid.beta) // 2
    middle = float(loss[row, column])
    below = float((loss <= middle + RISE).mean())
    # Row by row of the grid, as ravel goes: beta runs fastest.
    points = [(a, b) for a in grid.alpha for b in grid.beta]
    values = zip(*(metric.ravel() for metric in grid.metrics.values()), strict=True)
    table = [[*point, *row] for point, row in zip(points, values, strict=True)]
    return Landscape(
        arrays={
            "alpha": grid.alpha,
            "beta": grid.beta,
            **grid.metrics,
            **more,
        },
        rows=[["alpha", "beta", *grid.metrics], *table],
        figures={
            "": draw_planes({run.label: grid}),
            "_surface": draw_surface(grid),
        },
        text=f"{run.about}: the plane of {axes}, around the server's model, on all "
        f"test rows: loss {middle:.4f} in the middle, at most {RISE} more on "
        f"{100 * below:.0f} % of {loss.size} points",
    )
