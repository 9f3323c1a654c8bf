"""The path of the server's model through training."""

from pathlib import Path

import jax
import numpy as np

from pfljax.landscape.barriers import barrier
from pfljax.landscape.figures import draw_barriers, draw_planes
from pfljax.landscape.finished import Finished
from pfljax.landscape.frames import principal
from pfljax.landscape.kinds.record import METRICS, Landscape, find_finite
from pfljax.landscape.lines import line
from pfljax.landscape.planes import plane, pooled
from pfljax.report.frames import make_frame

CONNECTED = 0.01  # barriers of the accuracy up to this do not count
REACH = 1.2  # of the plane's axes: the farthest round lies at 1


def compute_training(path: Path, points: int) -> Landscape:
    """Barriers between the server's model at each kept round and the last, and a plane.

    Linear mode connectivity along training (Frankle et al., ICML 2020), on all test
    data. The plane is that of the trajectory's two principal directions.
    """
    if points < 3:
        raise ValueError(f"points is {points}; expected 3 or more")
    run = Finished(path)
    # Refuses a method without a server's model, before checkpoints are read.
    run.server()
    rounds, models = run.history()
    # One end is stacked over rounds; the other, one model, is shared by all lines.
    last = jax.tree.map(lambda leaf: leaf[-1], models)
    test = pooled(run.federation.test)
    batch_size = run.batch_size

    t = np.linspace(0, 1, points)
    lines = line(run.task, models, last, test, t=t, batch_size=batch_size)
    barriers = {name: barrier(lines, name) for name in METRICS}

    frame, shares = principal(models, [str(round_) for round_ in rounds])
    axis = np.linspace(-REACH, REACH, points)
    grid = plane(run.task, frame, test, alpha=axis, beta=axis, batch_size=batch_size)

    columns = {f"{name} barrier": values for name, values in barriers.items()}
    columns |= {name: lines.metrics[name][:, 0] for name in METRICS}
    arrays = {"round": np.asarray(rounds), **columns, "shares": shares}
    arrays |= {"alpha": grid.alpha, "beta": grid.beta, **grid.metrics}
    return Landscape(
        arrays=arrays,
        table=make_frame({"round": rounds, **columns}),
        figures={
            "": draw_barriers(rounds, barriers),
            "_plane": draw_planes({run.label: grid}),
        },
        text=f"{run.about}: {_sentence(rounds, barriers)}; two principal directions "
        f"hold {100 * shares.sum():.0f} % of the trajectory",
    )


def _sentence(rounds: list[int], barriers: dict[str, np.ndarray]) -> str:
    """The barriers in words."""
    finite = find_finite(barriers)
    highest = barriers["loss"][finite].max(initial=0)
    first = _first_connected(rounds, barriers["accuracy"])
    alone = ", which is the last" if first == rounds[-1] else ""
    return (
        f"lines from the server's model at {len(rounds)} rounds to the last, on all "
        f"test data, {finite.sum()} of {len(finite)} finite: barriers of the loss "
        f"{highest:.4f} at most; from round {first} on{alone}, the accuracy is at most "
        "0.01 below the line"
    )


def _first_connected(rounds: list[int], barriers: np.ndarray) -> int:
    """The first round from which on all rounds are connected to the last."""
    # Not `> CONNECTED`: a barrier that is NaN connects nothing.
    apart = np.flatnonzero(~(barriers[:-1] <= CONNECTED))
    return rounds[apart[-1] + 1 if len(apart) else 0]
