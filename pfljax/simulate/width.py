"""Chooses how many clients train at once: by a table or a probe, and by memory.

The table is `components.WIDTHS`; `width="auto"` times one round of each width instead.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.engine import mesh, placement
from pfljax.runs import folder
from pfljax.runs.settings import Experiment
from pfljax.runtime import memory
from pfljax.runtime.processes import ask
from pfljax.simulate import components, simulation, size
from pfljax.simulate.shape import make_shape
from pfljax.simulate.simulation import Simulation


def choose(
    experiment: Experiment,
    federation: Federation,
    task: Task | None,
    path: Path | None = None,
) -> Simulation:
    """The simulation with the width of the experiment, or with the best one.

    A run that was begun in the folder `path` keeps its width.

    Raises:
      ValueError: it needs more memory than there is.
    """

    def build(width: int | None) -> Simulation:
        return simulation.simulation(experiment.replace(width=width), federation, task)

    wanted = experiment.width
    known = components.resolve_width(experiment)
    # XLA aborts the process if it compiles a program that is far too large.
    model = task or components.make_task(experiment, make_shape(experiment, federation))
    size.check_model(model, ask(memory.free_bytes, 1))
    size.check(build(known))
    # Pages are as large as they are made.
    if experiment.state_storage != "device":
        return build(known)
    if isinstance(wanted, int):
        return choose_fitting([wanted], build, federation)
    # Another width would sum in another order, and free memory may have changed.
    if path and ask(folder.has_saved_state, path):
        environment = ask(folder.read_json, path / "environment.json")
        return build(environment["width"])
    # Several processes would measure different widths as the fastest.
    if wanted == "auto" and jax.process_count() == 1:
        return build(_probe(experiment, federation, build))
    widths = halves(experiment.cohort)
    if known is not None:
        widths = [width for width in widths if width <= known]
    return choose_fitting(widths, build, federation)


def halves(cohort: int) -> list[int]:
    """Widths from the whole cohort down to 1."""
    widths = [cohort]
    while widths[-1] > 1:
        widths.append(-(-widths[-1] // 2))
    return widths


def choose_fitting(
    widths: Sequence[int | None],
    build: Callable[[int | None], Simulation],
    federation: Federation,
    limit: float | None = None,
) -> Simulation:
    """The simulation of the first of `widths` that fits into `limit` bytes a device.

    None for what the machine has.
    """
    needed = 0
    free = 0.0
    for width in widths:
        sim = build(width)
        free = size.free(sim) if limit is None else limit
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
        owner = simulation.owners(sim, federation.num_clients)
        train = placement.abstract(grid, federation.parts, owner)["train"]
    else:
        train = mesh.abstract(grid, federation.train)
    rounds: Any = sim.rounds
    public = federation.public
    if public is not None:
        public = mesh.abstract(grid, public)
    program = rounds.lower(simulation.abstract(sim), train, 1, public=public).compile()
    return memory.needed_bytes(program)


def _probe(experiment: Experiment, federation: Federation, build: Any) -> int:
    """The fastest width, by one timed round of each."""
    seconds: dict[int, float] = {}
    for width in reversed(halves(experiment.cohort)):
        sim = build(width)
        # Widths ascend: whatever is wider needs more memory still.
        if bytes_needed(sim, federation) > size.free(sim):
            break
        seconds[width] = _one_round(sim, federation)
    if not seconds:
        choose_fitting([1], build, federation)  # raises
    return min(seconds, key=seconds.__getitem__)


def _one_round(sim: Simulation, federation: Federation) -> float:
    """Seconds of a round, without the compilation and a first round."""
    federation = simulation.place(sim, federation)
    state, taken = sim.init(jax.random.key(0)), 0.0
    for _ in range(2):
        start = time.perf_counter()
        state, _ = sim.rounds(state, federation.train, 1, public=federation.public)
        jax.block_until_ready(state)
        taken = time.perf_counter() - start
    return taken
