"""Where the clients' states of a run live.

device  all states in `RunState.clients`, the checkpoint holds them
host    in host memory; the devices hold those of the coming rounds (`engine.paging`)
disk    the same in files of the run folder (`engine.paging.disk`)
"""

import functools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from pfljax.core.types import ClientData, RunState
from pfljax.engine.paging import records
from pfljax.engine.paging.disk import DiskStore, bytes_needed
from pfljax.engine.paging.host import HostStore
from pfljax.engine.paging.pages import Stream
from pfljax.engine.paging.records import StoreError
from pfljax.runs import checkpoint, config
from pfljax.runs.settings import Experiment
from pfljax.simulate.simulation import Simulation


@dataclass
class Resident:
    """A population that lies on the devices whole; a `Stream` does the same."""

    compiled: Callable[..., Any]  # engine.compile_rounds
    states: Any = None

    def rounds(
        self, state: RunState, train: ClientData, count: int, ahead: int = 0
    ) -> Any:
        """(state, metrics) as `engine.rounds`."""
        return self.compiled(state, train, count)

    def save(self, round_: int, write: Callable[[], Any]) -> None:
        """Runs `write`, which saves a checkpoint."""
        write()

    def planned(self) -> int:
        """No rounds are read ahead."""
        return 0

    def committed(self) -> None:
        """Nothing is waited for."""


def population(
    sim: Simulation,
    experiment: Experiment,
    path: Path,
    round_: int,
    say: Callable[[str], None],
    writable: bool = True,
) -> Resident | Stream:
    """The clients of the run in `path`, as they were after this round.

    Raises a StoreError where the folder of the store is damaged or another run's.
    """
    programs = sim.programs
    if programs is None:
        return Resident(sim.rounds)
    if jax.process_count() > 1:
        raise StoreError(
            f"store is {experiment.machine.store!r}, which one process alone can use; "
            "choose store 'device' for several"
        )
    folder, layout, keep = path / "clients", programs.layout, experiment.output.keep
    digest = config.digest(experiment)
    owner = records.owner(
        experiment.machine.store, digest, programs.num_clients, layout
    )
    there = records.read_description(folder, owner) is not None
    if not there and (round_ or not writable):
        raise StoreError(f"{folder} has no store.json; {records.GO_ON}")
    if experiment.machine.store == "disk":
        if writable:
            _check_room(path, experiment, programs.num_clients, layout.nbytes, say)
        store = DiskStore(folder, owner, layout, keep, writable)
    else:
        store = HostStore(folder, owner, layout)
    store.restore(round_)
    if writable:
        saved = checkpoint.saved_rounds(path / "checkpoints")
        store.keep(saved[-keep:])
    key = jax.random.key(experiment.seed)
    kept = functools.partial(_kept, path / "checkpoints", keep)
    return Stream(programs, sim.rounds, store, key, programs.params(key), kept)


def _kept(folder: Path, keep: int, round_: int) -> list[int]:
    """The rounds of the checkpoints that stay when this one is saved as well."""
    return sorted({*checkpoint.saved_rounds(folder), round_})[-keep:]


def _check_room(
    path: Path, experiment: Experiment, clients: int, nbytes: int, say: Any
) -> None:
    """Warns where the disk may be too small for the clients that will take part."""
    writes = experiment.participation.rounds * experiment.participation.cohort
    wanted = bytes_needed(clients, nbytes, writes, experiment.output.keep)
    free = _free(path)
    if wanted > free:
        say(
            f"pfljax: warning: the states of the clients may take {wanted / 1e9:.1f} GB"
            f" of disk, but {path} has {free / 1e9:.1f} GB left"
        )


def _free(path: Path) -> int:
    """Bytes left on the disk, with those that the folder's own files take."""
    rows = path / "clients" / "rows.bin"
    own = rows.stat().st_blocks * 512 if rows.exists() else 0
    return shutil.disk_usage(path).free + own
