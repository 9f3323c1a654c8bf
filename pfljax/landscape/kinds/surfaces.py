"""Planes of a finished run: around the server's model, through models, of a curve."""

from operator import itemgetter

import jax
import numpy as np

from pfljax.core import tree
from pfljax.core.types import Params
from pfljax.landscape import frames
from pfljax.landscape.barriers import barrier
from pfljax.landscape.curvature import density, eigen, trace
from pfljax.landscape.curves import curve_weights, mix, train_curve
from pfljax.landscape.figures import draw_line, draw_spectrum
from pfljax.landscape.finished import Finished
from pfljax.landscape.kinds import blocks, record
from pfljax.landscape.lines import Line, evaluate_mixtures
from pfljax.landscape.plane_figures import draw_planes
from pfljax.landscape.planes import Plane, plane, pooled
from pfljax.landscape.sharpness import sharpness
from pfljax.report.frames import make_frame
from pfljax.runs.landscape_options import LandscapeOptions

RISE = 0.5  # of the loss above the least one; the text says how much lies below
PART = 0.1  # of the model's norm, to which an eigenvector is scaled
BLOCKS = 128  # of a plane, at most
EPOCHS = 30  # of the bend of a curve, in local steps of the run


def compute_plane(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> record.Landscape:
    """A plane around the server's model, or through the models of `through`.

    Around the server's model it has two random directions, normalised filter by filter
    (Li et al., 2018). The plane through two models has a random direction as well.
    """
    rows = record.pool_rows(run, options)
    if options.through:
        if options.range is not None:
            raise ValueError(
                "range is for the plane around the server's model, and one through "
                "models reaches as far as they do; leave it out"
            )
        frame = find_frame(run, options)
        names = " and ".join(frame.marks)
        axes = frames.cover(frame, options.points or 0)
        grid = evaluate_plane(run, frame, axes, rows, store)
        return describe_plane(run, grid, f"through {names}", options)
    center = run.server()
    u, v = (_draw_direction(run, center, options, number) for number in (0, 1))
    axis = record.place_points(options, 0)
    grid = evaluate_plane(run, frames.around(center, u, v), (axis, axis), rows, store)
    axes = "of random directions, normalised by filter, around the server's model"
    return describe_plane(run, grid, axes, options)


def find_frame(run: Finished, options: LandscapeOptions) -> frames.Frame:
    """The plane through two or three models of the run.

    Raises:
      ValueError: they are fewer or more, or the run lacks one.
    """
    names = tuple(options.through)
    if len(set(names)) not in (2, 3) or len(set(names)) < len(names):
        raise ValueError(
            f"through names {', '.join(names)}; expected two or three different "
            "models, such as: server client:3 client:7"
        )
    first, second, *rest = [run.model(name) for name in names]
    if not rest:
        third = tree.add(first, _draw_direction(run, first, options, 0))
        frame = frames.through(first, third, second, names=(names[0], "", names[1]))
        frame.marks.pop("")
        return frame
    a, b, c = names
    return frames.through(first, second, *rest, names=(a, b, c))


def _draw_direction(
    run: Finished, model: Params, options: LandscapeOptions, number: int
) -> Params:
    # Two directions of a seed, none of which is one of another seed.
    key = jax.random.key(2 * (options.seed or 0) + number)
    return frames.random_direction(key, model, run.network)


def compute_hessian(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> record.Landscape:
    """Curvature of the pooled training loss at the server's model, and its plane.

    The plane is that of the two leading eigenvectors, each scaled to a tenth of the
    model's norm.
    """
    center = run.server()
    train = pooled(run.federation.train)
    # The same keys for every run: figures of two runs differ by their models alone.
    keys = jax.random.split(jax.random.key(options.seed or 0), 3)
    eigen_key, trace_key, density_key = keys
    leading = eigen(run.task, center, train, eigen_key)
    curvature = trace(run.task, center, train, trace_key)
    spectrum = density(run.task, center, train, density_key)
    steepness = sharpness(run.task, center, train, rho=record.RHO)
    length = PART * float(tree.square_norm(center)) ** 0.5
    # An eigenvector of norm 1 would reach far beyond what the Hessian describes.
    scaled = tree.scale(leading.vectors, length)
    u, v = (jax.tree.map(itemgetter(index), scaled) for index in (0, 1))
    rows = record.pool_rows(run, options)
    axis = record.place_points(options, 0)
    grid = evaluate_plane(run, frames.around(center, u, v), (axis, axis), rows, store)
    arrays = {
        "eigenvalues": leading.values,
        "trace": curvature.value,
        "trace error": curvature.error,
        "rise": steepness.rise,
        "spectrum/grid": spectrum.grid,
        "spectrum/density": spectrum.density,
    }
    axes = "of the two leading eigenvectors of the Hessian, at the server's model"
    surface = describe_plane(run, grid, axes, options)
    drawn = draw_spectrum(run.label, spectrum, leading.values)
    text = (
        f"eigenvalues {leading.values[0]:.4g}, {leading.values[1]:.4g} (residuals "
        f"{leading.residuals[0]:.1g}, {leading.residuals[1]:.1g}), trace "
        f"{curvature.value:.4g} ± {curvature.error:.2g}, the loss rises by "
        f"{steepness.rise:.4g} within {record.RHO} (SAM), all of the training loss"
    )
    return surface._replace(
        arrays=surface.arrays | arrays,
        figures=surface.figures | {"_spectrum": drawn},
        text=f"{surface.text}\n{text}",
    )


def evaluate_plane(
    run: Finished,
    frame: frames.Frame,
    axes: tuple[np.ndarray, np.ndarray],
    rows: record.Rows,
    store: blocks.Store,
) -> Plane:
    """The plane at the positions of both axes, in blocks of its rows."""
    alpha, beta = axes

    def evaluate(number: np.ndarray) -> dict[str, np.ndarray]:
        part = plane(
            run.task,
            frame,
            rows.data,
            alpha=alpha[number],
            beta=beta,
            train=rows.train,
            batch_size=run.batch_size,
        )
        return part.metrics

    size = -(-len(alpha) // BLOCKS)
    metrics = blocks.compute(store, "plane", blocks.cut(len(alpha), size), evaluate)
    return Plane(alpha=alpha, beta=beta, metrics=metrics, marks=frame.marks)


def describe_plane(
    run: Finished,
    grid: Plane,
    axes: str,
    options: LandscapeOptions,
    way: np.ndarray | None = None,
) -> record.Landscape:
    """The landscape of a plane along `axes`, with a `way` on it."""
    metric = options.metric or "loss"
    loss = grid.metrics["loss"]
    least = float(np.nanmin(loss)) if np.isfinite(loss).any() else np.nan
    below = float((loss <= least + RISE).mean())
    square = f"{len(grid.alpha)} x {len(grid.beta)} points"
    if options.kind != "curve" and not options.through:
        square += f" from {grid.alpha[0]:g} to {grid.alpha[-1]:g}"
    rows = f"{square}, {record.describe_rows(run, options)}"
    alpha, beta = np.meshgrid(grid.alpha, grid.beta, indexing="ij")
    columns = {"alpha": alpha, "beta": beta, **grid.metrics}
    return record.Landscape(
        arrays={"alpha": grid.alpha, "beta": grid.beta, **grid.metrics},
        table=make_frame({name: values.ravel() for name, values in columns.items()}),
        figures={"": draw_planes({run.label: grid}, metric, {run.label: way})},
        text=f"{run.about}: the plane {axes}, {rows}: least loss {least:.4f}, at most "
        f"{RISE} more on {100 * below:.0f} % of {loss.size} points",
        facts=f"The {metric} in the plane {axes}: {rows}.",
    )


def compute_curve(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> record.Landscape:
    """The curve between two models of `through`.

    It is trained on the training examples of all clients, or of those that are named if
    the rows are their own.
    """
    if len(options.through) != 2:
        raise ValueError(
            f"through names {len(options.through)} models, and a curve has two ends: "
            "give two, such as: server client:3"
        )
    rows = record.pool_rows(run, options)
    start, end = options.through
    first, last = run.model(start), run.model(end)
    local = run.sim.setting.local._replace(epochs=EPOCHS, steps=None)
    key = jax.random.fold_in(jax.random.key(options.seed or 0), run.ids[0])
    points = train_curve(run.task, first, last, rows.train, local, key)
    t = record.place_on_line(options)
    weights = curve_weights("bezier", 3, t)
    straight = np.stack([1 - t, 0 * t, t], 1)
    bend = jax.tree.map(itemgetter(1), points)
    models = {start: first, "bend": bend, end: last}
    given = {"train": rows.train, "batch_size": run.batch_size}
    lines = {
        way: Line(t, evaluate_mixtures(run.task, models, each, rows.data, **given))
        for way, each in (("curve", np.asarray(weights)), ("straight line", straight))
    }
    frame = frames.through(first, bend, last, names=(start, "bend", end))
    way = frames.project(frame, jax.vmap(mix, (None, 0))(points, weights)).positions
    square = frames.cover(frame, options.points or 0)
    grid = evaluate_plane(run, frame, square, rows, store)
    plane = describe_plane(run, grid, f"of the curve {start} to {end}", options, way)
    along: dict[str, np.ndarray] = {"t": t, "way": way}
    barriers = []
    for name, found in lines.items():
        along |= {f"{name}/{metric}": v for metric, v in found.metrics.items()}
        barriers.append(f"loss barrier {barrier(found):.4f} on the {name}")
    figure = draw_line(lines, options.metric or "loss", (start, end))
    return plane._replace(
        arrays=plane.arrays | along,
        figures={"": figure, "_plane": plane.figures[""]},
        text=f"{plane.text}; {record.describe_line(t)}: {', '.join(barriers)}",
    )
