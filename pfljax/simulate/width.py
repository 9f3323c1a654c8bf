"""Chooses how many clients train at once: by `components.WIDTHS`, and by memory."""

import functools
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.engine import mesh, placement
from pfljax.runs import folder
from pfljax.runs.settings import Experiment
from pfljax.runtime import memory
from pfljax.runtime.processes import ask
from pfljax.simulate import components, simulation, size
from pfljax.simulate.first_model import Initial
from pfljax.simulate.place import owners
from pfljax.simulate.shape import make_shape
from pfljax.simulate.simulation import Simulation


def choose(
    experiment: Experiment,
    federation: Federation,
    task: Task | None,
    path: Path | None = None,
    traced: Collection[str] = (),
    initial: Initial | None = None,
) -> Simulation:
    """The simulation with the width of the experiment, or of the platform.

    A run that was begun in the folder `path` keeps its width. `traced` and `initial`
    are those of `simulation`.

    Raises:
      ValueError: it needs more memory than there is.
    """

    @functools.cache
    def build(width: int | None) -> Simulation:
        wide = experiment.replace(width=width)
        return simulation.simulation(wide, federation, task, traced, initial)

    known = components.resolve_width(experiment)
    # XLA aborts the process if it compiles a program that is far too large.
    model = task or components.make_task(experiment, make_shape(experiment, federation))
    size.check_model(model, ask(memory.free_bytes, 1))
    size.check(build(known))
    # Pages are as large as they are made.
    if experiment.state_storage != "device":
        return build(known)
    widths = [known] if known else halves(experiment.cohort)
    # Another width would sum in another order, and free memory may have changed.
    if experiment.width is None and path and ask(folder.has_saved_state, path):
        environment = ask(folder.read_json, path / "environment.json")
        return build(environment["width"])
    return choose_fitting(widths, build, federation)


def halves(cohort: int) -> list[int]:
    """Widths from the whole cohort down to 1."""
    widths = [cohort]
    while widths[-1] > 1:
        widths.append(-(-widths[-1] // 2))
    return widths


def choose_fitting(
    widths: Sequence[int],
    build: Callable[[int], Simulation],
    federation: Federation,
) -> Simulation:
    """The simulation of the first of `widths` that fits into the free memory.

    Raises:
      ValueError: none of them does.
    """
    needed = 0
    free = 0.0
    for width in widths:
        sim = build(width)
        free = size.free(sim)
        needed = bytes_needed(sim, federation)
        if needed <= free:
            return sim
    raise ValueError(
        f"width {widths[-1]} needs {needed / 1e9:.2f} GB with data and states on each "
        f"device, and {free / 1e9:.2f} GB are free; choose another width, cohort "
        "or model, or --state-storage disk"
    )


def bytes_needed(sim: Simulation, federation: Federation) -> int:
    """Bytes that the compiled rounds need on each device, data and states included.

    Nothing of them lies there yet.
    """
    grid = sim.setting.mesh
    if grid is not None and grid.pin_clients:
        owner = owners(sim, federation.num_clients)
        train = placement.abstract(grid, federation.parts, owner)["train"]
    else:
        train = mesh.abstract(grid, federation.train)
    rounds: Any = sim.rounds
    public = federation.public
    if public is not None:
        public = mesh.abstract(grid, public)
    program = rounds.lower(simulation.abstract(sim), train, 1, public=public).compile()
    return memory.needed_bytes(program)
