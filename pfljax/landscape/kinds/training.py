"""The path of the server's model through training."""

import jax
import numpy as np

from pfljax.landscape.barriers import barrier
from pfljax.landscape.figures import draw_barriers
from pfljax.landscape.finished import Finished
from pfljax.landscape.frames import cover, principal
from pfljax.landscape.kinds import blocks
from pfljax.landscape.kinds.record import (
    METRICS,
    Landscape,
    describe_rows,
    find_finite,
    place_points,
    pool_rows,
)
from pfljax.landscape.kinds.surfaces import evaluate_plane
from pfljax.landscape.lines import line
from pfljax.landscape.plane_figures import draw_planes
from pfljax.landscape.planes import compare_marks
from pfljax.report.frames import make_frame
from pfljax.runs.landscape_options import LandscapeOptions

CONNECTED = 0.01  # barriers of the accuracy up to this do not count


def compute_training(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> Landscape:
    """Barriers between the server's model at each kept round and the last, and a plane.

    Linear mode connectivity along training (Frankle et al., ICML 2020). The plane is
    that of the trajectory's two principal directions; a round's model lies beside it,
    and the text says how far its loss is from that of its mark.
    """
    run.server()  # refuses a method without one, before checkpoints are read
    rounds, models = run.history()
    # One end is stacked over rounds; the other, one model, is shared by all lines.
    last = jax.tree.map(lambda leaf: leaf[-1], models)
    rows = pool_rows(run, options)
    given = {"train": rows.train, "batch_size": run.batch_size}
    t = place_points(options, 0, 0.5, 1)
    lines = line(run.task, models, last, rows.data, t=t, **given)
    barriers = {name: barrier(lines, name) for name in METRICS}

    frame, shares = principal(models, [str(round_) for round_ in rounds])
    axes = cover(frame, options.points or 0)
    grid = evaluate_plane(run, frame, axes, rows, store)
    marked = compare_marks(run.task, frame, models, rows.data, **given)

    columns = {f"{name} barrier": values for name, values in barriers.items()}
    columns |= {name: lines.metrics[name][:, 0] for name in METRICS}
    columns |= {f"{name} at its mark": marked.on_plane[name] for name in METRICS}
    columns["distance to the plane"] = marked.seen.distance
    arrays = {"round": np.asarray(rounds), **columns, "shares": shares}
    arrays |= {"alpha": grid.alpha, "beta": grid.beta, **grid.metrics}
    loss = marked.models["loss"]
    lost = np.nanmax(np.abs(marked.on_plane["loss"] / loss - 1), initial=0)
    beside = (
        f"two directions hold {100 * shares.sum():.0f} % of the trajectory, and the "
        f"loss at a mark is up to {100 * lost:.0f} % off that of the round's model"
    )
    drawn = draw_planes(
        {run.label: grid}, options.metric or "loss", {run.label: marked.seen.positions}
    )
    return Landscape(
        arrays=arrays,
        table=make_frame({"round": rounds, **columns}),
        figures={"": draw_barriers(rounds, barriers), "_plane": drawn},
        text=f"{run.about}: {_sentence(rounds, barriers)}, with "
        f"{describe_rows(run, options)}; {beside}",
        facts=f"With {describe_rows(run, options)}; {beside}.",
    )


def _sentence(rounds: list[int], barriers: dict[str, np.ndarray]) -> str:
    """The barriers in words."""
    finite = find_finite(barriers)
    highest = barriers["loss"][finite].max(initial=0)
    first = _first_connected(rounds, barriers["accuracy"])
    alone = ", which is the last" if first == rounds[-1] else ""
    return (
        f"lines from the server's model at {len(rounds)} rounds to the last, "
        f"{finite.sum()} of {len(finite)} finite: barriers of the loss {highest:.4f} "
        f"at most; from round {first} on{alone}, the accuracy is at most 0.01 below "
        "the line"
    )


def _first_connected(rounds: list[int], barriers: np.ndarray) -> int:
    """The first round from which on all rounds are connected to the last."""
    # Not `> CONNECTED`: a barrier that is NaN connects nothing.
    apart = np.flatnonzero(~(barriers[:-1] <= CONNECTED))
    return rounds[apart[-1] + 1 if len(apart) else 0]
