"""Runs that differ in seed alone, trained at once by one program."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pfljax.core.types import Metrics, RunState
from pfljax.engine import mesh, several
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices, memory
from pfljax.runtime.programs import Same, kept
from pfljax.simulate import simulation, width
from pfljax.simulate.begin import Run
from pfljax.simulate.simulation import Simulation

SHARE = 0.5  # of a device's memory: the most that runs at once may take


def groups(experiments: Sequence[Experiment]) -> list[Sequence[Experiment]]:
    """The seeds of one experiment by the runs that are trained at once.

    As many as each device can have alike: on a CPU one a device, else all that there
    are. Where some would be left over, every seed runs alone: they would need another
    program, and to compile it takes longer than many a run.
    """
    size = _at_once(experiments[0], len(experiments))
    if len(experiments) % size:
        size = 1
    starts = range(0, len(experiments), size)
    return [experiments[start : start + size] for start in starts]


def _at_once(experiment: Experiment, count: int) -> int:
    devices.prepare()
    machine = experiment.machine
    # A store pages by run, and clients at home are on all devices.
    if machine.store != "device" or machine.homes or jax.process_count() > 1:
        return 1
    if experiment.method.models:  # a group of clients is a program of its own
        return 1
    if experiment.participation.mode.name != "sync":  # events differ by seed
        return 1
    if machine.width == "auto":  # it is timed for a run that is alone
        return 1
    # As many as one run shares: fewer would leave some idle.
    shared = devices.choose(machine.devices, experiment.participation.cohort)
    return shared if jax.default_backend() == "cpu" else count


def name_of(runs: Sequence[Run]) -> str:
    """The method and seed of the first run, which is shown, and the seeds beside it."""
    first, *others = (run.experiment for run in runs)
    name = f"{first.output.label}, seed {first.seed}"
    if others:
        name += f" beside {', '.join(str(other.seed) for other in others)}"
    return name


def agreed(paths: Sequence[Path]) -> bool:
    """Whether no run of a group was begun by another program than that of the group.

    Else it would end with other bits than it does without a break.
    """
    counts = {width.at_once(path) for path in paths} - {None}
    return counts <= {len(paths)}


class Several:
    """The compiled rounds of all runs of a group, by their places in it."""

    def __init__(
        self, places: int, program: Any, rows: Any, idle: Mapping[int, RunState]
    ) -> None:
        self.places = places
        self._program = program
        self._rows = rows
        # Runs that ended before the others: the program has a place for each.
        self._idle = dict(idle)

    def rounds(
        self, states: Mapping[int, RunState], counts: Mapping[int, int]
    ) -> tuple[dict[int, RunState], dict[int, Metrics]]:
        """(states after so many more rounds, metrics by round); donates `states`."""
        everybody = dict(states) | self._idle
        places = sorted(everybody)
        given = tuple(everybody[place] for place in places)
        count = np.array([counts.get(place, 0) for place in places], np.int32)
        after, stacked = self._program(given, self._rows, count)
        metrics = jax.device_get(stacked)  # waits: the clock must see the rounds done
        metrics_by_run = {}
        for place, state in enumerate(after):
            if place in self._idle:
                self._idle[place] = state
                continue
            metrics_by_run[place] = {name: m[place] for name, m in metrics.items()}
        return {place: after[place] for place in states}, metrics_by_run


def prepare(runs: Mapping[int, Run], places: int) -> Several | None:
    """The runs of a group of so many, of which some may have ended before.

    None where they share no program, or would take too much memory: they run one by
    one.
    """
    first, *others = runs.values()
    sim = first.sim
    # Asynchronous events differ by seed: their rounds are no one program's.
    if sim.setting.mode is not None:
        return None
    rows = {place: _rows(run) for place, run in runs.items()}
    kinds = {_shapes(of_run) for of_run in rows.values()}
    if len(kinds) > 1 or any(run.sim is not sim for run in others):
        return None
    placed = several.place(
        sim.setting, [rows.get(place, _rows(first)) for place in range(places)]
    )
    program = _compiled(Same(sim), places, _shapes(placed))
    # Of all memory, not of what is free: a run that goes on does so in the same way.
    room = SHARE * memory.whole_bytes(_num_devices(sim))
    if memory.needed_bytes(program) > room:
        return None
    idle = {}
    for place in range(places):
        if place not in runs:
            state = sim.init(jax.random.key(0))
            where = mesh.shardings(sim.setting.mesh, state)
            idle[place] = jax.device_put(state, where)
    return Several(places, program, placed, idle)


@kept
def _compiled(sim: Same, places: int, rows: Any) -> Any:
    of_run: Simulation = sim.value
    leaves, treedef = rows
    return several.compile_several(
        of_run.setting,
        of_run.longest,
        simulation.abstract(of_run),
        jax.tree.unflatten(treedef, leaves),
        places,
    )


def _rows(run: Run) -> several.Rows:
    return run.federation.train, run.federation.public


def _shapes(rows: Any) -> tuple[tuple[Any, ...], Any]:
    """(leaves, structure) of the rows as shapes."""

    def of_leaf(leaf: Any) -> jax.ShapeDtypeStruct:
        sharding = getattr(leaf, "sharding", None)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    leaves, treedef = jax.tree.flatten(jax.tree.map(of_leaf, rows))
    return tuple(leaves), treedef


def _num_devices(sim: Simulation) -> int:
    return sim.setting.mesh.size if sim.setting.mesh else 1
