"""The trained curve between two models of a finished run, on the plane of its bend."""

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.landscape.barriers import barrier
from pfljax.landscape.curves import curve_weights, mix, separate
from pfljax.landscape.figures import draw_line
from pfljax.landscape.finished import Finished
from pfljax.landscape.frames import cover, project, through
from pfljax.landscape.kinds import blocks
from pfljax.landscape.kinds.lines import WAYS, compute_lines, train_bend
from pfljax.landscape.kinds.record import Landscape, place_points, pool_rows
from pfljax.landscape.kinds.surfaces import describe_plane, evaluate_plane
from pfljax.landscape.lines import Line, evaluate_mixtures
from pfljax.runs.landscape_options import LandscapeOptions


def compute_curves(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> Landscape:
    """The curve between the ends of each client's line, or two models of `through`.

    It is trained on each client's training examples; between two models, on those of
    all, or of the clients that are named if the rows are their own.
    """
    if not options.through:
        return compute_lines(run, options, store)
    if len(options.through) != 2:
        raise ValueError(
            f"through names {len(options.through)} models, and a curve has two ends: "
            "give two, such as: server client:3"
        )
    rows = pool_rows(run, options)
    start, end = options.through
    seed = options.seed or 0
    points = train_bend(run, run.model(start), run.model(end), rows.train, seed)
    t = place_points(options, 0, 0.5, 1)
    weights = np.asarray(curve_weights("bezier", 3, t))
    straight = np.stack([1 - t, 0 * t, t], 1)
    first, bend, last = separate(run.task, points)
    models = {start: first, "bend": bend, end: last}
    given = {"train": rows.train, "batch_size": run.batch_size}
    lines = {
        way: Line(t, evaluate_mixtures(run.task, models, each, rows.data, **given))
        for way, each in zip(WAYS["curve"], (weights, straight), strict=True)
    }
    frame = through(first, bend, last, names=(start, "bend", end))
    on_curve = jax.vmap(mix, (None, 0))(points, jnp.asarray(weights))
    way = project(frame, on_curve).positions
    grid = evaluate_plane(run, frame, cover(frame, options.points or 0), rows, store)
    axes = f"of the curve from {start} to {end}"
    plane = describe_plane(run, grid, axes, options, way)
    along: dict[str, np.ndarray] = {"t": t, "way": way}
    barriers = []
    for name, line in lines.items():
        along |= {f"{name}/{metric}": v for metric, v in line.metrics.items()}
        barriers.append(f"{barrier(line):.4f} on the {name}")
    figure = draw_line(lines, options.metric or "loss", (start, end))
    return plane._replace(
        arrays=plane.arrays | along,
        figures={"": figure, "_plane": plane.figures[""]},
        text=f"{plane.text}; barriers of the loss {', '.join(barriers)}",
    )
