"""How much disk the folder of a run may take, told before it trains."""

import shutil
from collections.abc import Callable
from pathlib import Path

from pfljax.core import tree
from pfljax.engine import stores
from pfljax.engine.offload import Programs, StackPrograms
from pfljax.runs.settings import Experiment
from pfljax.simulate import simulation
from pfljax.simulate.simulation import Simulation

GB = 1e9
NUMBER = 4  # bytes of a metric of a client
METRICS = 4  # of a model and split
# A file an evaluation, and at the end one of all.
COPIES = 2


def check(
    path: Path, sim: Simulation, experiment: Experiment, say: Callable[[str], None]
) -> None:
    """Warns where the disk may be too small for what a run will write."""
    needed = bytes_needed(sim, experiment)
    free = _free(path)
    if needed > free:
        say(
            f"pfljax: warning: the run may take {needed / GB:.1f} GB of disk, its "
            f"checkpoints and what it keeps of clients, but {path} has "
            f"{free / GB:.1f} GB left; choose another --out, a smaller model or --keep "
            "1, or make room"
        )


def bytes_needed(sim: Simulation, experiment: Experiment) -> int:
    """At most these bytes: checkpoints, states in a store, and evaluations."""
    state = simulation.abstract(sim)
    # The oldest goes when the newest is whole.
    checkpoints = experiment.output.keep + 1
    needed = checkpoints * tree.nbytes(state)
    needed += _of_evaluations(sim, experiment, state.participations.shape[0])
    if sim.paging is not None:
        stacks = sim.paging.stacks
        needed += sum(_of_store(each, sim.paging, experiment) for each in stacks)
    return needed


def _of_store(stack: StackPrograms, programs: Programs, experiment: Experiment) -> int:
    """Bytes of the states in a store: of whoever will have taken part."""
    clients = len(stack.members)
    nbytes = stack.layout.nbytes
    keep = experiment.output.keep
    writes = experiment.participation.rounds * experiment.participation.cohort
    # Of several stacks, each has its share of them.
    writes = -(-writes * clients // programs.num_clients)
    if experiment.machine.store == "disk":
        return stores.bytes_needed(clients, nbytes, writes, keep)
    # In host memory: each checkpoint has a file of all.
    return (keep + 1) * min(clients, writes) * nbytes


def _of_evaluations(sim: Simulation, experiment: Experiment, clients: int) -> int:
    """Bytes of metrics: a number a client, metric, model, split and time."""
    every = experiment.evaluation.eval_every
    times = -(-experiment.participation.rounds // every)
    # Those who train, on test and validation rows, and as many newcomers at most.
    arrays = METRICS * 2 * 2 * (len(sim.views) + 1)
    return COPIES * times * arrays * clients * NUMBER


def _free(path: Path) -> int:
    """Bytes left on the disk, with those that the run's own files take."""
    free = shutil.disk_usage(path).free
    for name in ("clients", "checkpoints"):
        for file in (path / name).rglob("*"):
            # Not its size: the rows of a store are mostly holes.
            free += file.lstat().st_blocks * 512
    return free
