"""Planes around the server's model of a finished run, by two choices of directions."""

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
from pfljax.report.frames import make_frame

RISE = 0.5  # of the loss above that of the center; the text says how much lies below
PART = 0.1  # of the model's norm, to which an eigenvector is scaled


def compute_plane(path: Path, points: int) -> Landscape:
    """The plane of two random directions around the server's model, on all test data.

    Directions are normalised filter by filter (Li et al., 2018), with the same draws
    for every run. Both axes go from -1 to 1.
    """
    run = Finished(path)
    center = run.server()
    u, v = (
        random_direction(jax.random.key(seed), center, run.network) for seed in (0, 1)
    )
    grid = _evaluate(run, center, u, v, points)
    return _describe(run, grid, "random directions, normalised by filter")


def compute_hessian(path: Path, points: int) -> Landscape:
    """Curvature of the pooled training loss at the server's model, and its plane.

    The plane is that of the two leading eigenvectors, each scaled to a tenth of the
    model's norm, and shows the loss of all test data.
    """
    run = Finished(path)
    center = run.server()
    train = pooled(run.federation.train)
    # The same keys for every run: figures of two runs differ by their models alone.
    keys = jax.random.split(jax.random.key(0), 3)
    eigen_key, trace_key, density_key = keys
    leading = eigen(run.task, center, train, eigen_key)
    curvature = trace(run.task, center, train, trace_key)
    spectrum = density(run.task, center, train, density_key)
    steepness = sharpness(run.task, center, train, rho=RHO)
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
    surface = _describe(run, grid, "the two leading eigenvectors of the Hessian")
    drawn = draw_spectrum(run.label, spectrum, leading.values)
    text = (
        f"eigenvalues {leading.values[0]:.4g}, {leading.values[1]:.4g} (residuals "
        f"{leading.residuals[0]:.1g}, {leading.residuals[1]:.1g}), trace "
        f"{curvature.value:.4g} ± {curvature.error:.2g}, the loss rises by "
        f"{steepness.rise:.4g} within {RHO} (SAM), all of the training loss"
    )
    return surface._replace(
        arrays=surface.arrays | arrays,
        figures=surface.figures | {"_spectrum": drawn},
        text=f"{surface.text}\n{text}",
    )


def _scale_vector(vectors: Params, index: int, length: float) -> Params:
    return jax.tree.map(lambda leaf: length * leaf[index], vectors)


def _evaluate(
    run: Finished, center: Params, u: Params, v: Params, points: int
) -> Plane:
    """The plane of all test data around the server's model, from -1 to 1."""
    if points < 3 or points % 2 == 0:
        raise ValueError(
            f"points is {points}; expected an odd number, 3 or more, to include the "
            "model in the middle"
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


def _describe(run: Finished, grid: Plane, axes: str) -> Landscape:
    """The landscape of a plane along `axes`."""
    loss = grid.metrics["loss"]
    # Both axes have an odd number of points around the model.
    middle = float(loss[len(grid.alpha) // 2, len(grid.beta) // 2])
    below = float((loss <= middle + RISE).mean())
    alpha, beta = np.meshgrid(grid.alpha, grid.beta, indexing="ij")
    columns = {"alpha": alpha, "beta": beta, **grid.metrics}
    return Landscape(
        arrays={"alpha": grid.alpha, "beta": grid.beta, **grid.metrics},
        table=make_frame({name: values.ravel() for name, values in columns.items()}),
        figures={
            "": draw_planes({run.label: grid}),
            "_surface": draw_surface(grid),
        },
        text=f"{run.about}: the plane of {axes}, around the server's model, on all "
        f"test data: loss {middle:.4f} in the middle, at most {RISE} more on "
        f"{100 * below:.0f} % of {loss.size} points",
    )
