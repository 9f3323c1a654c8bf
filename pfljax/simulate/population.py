"""Opens the client states of a run, where the setting `state_storage` keeps them.

device  all states are in `RunState.clients` and in the checkpoints
host    in host memory; the devices hold those of the next rounds (`engine.offload`)
disk    the same, in files of the run folder (`engine.disk_store`)
"""

import functools
from pathlib import Path

import jax

from pfljax.core.types import ClientData, RunState
from pfljax.engine import records
from pfljax.engine.asynchronous import AsyncRounds
from pfljax.engine.disk_store import DiskStore
from pfljax.engine.host_store import HostStore
from pfljax.engine.offload import Population, StoredPopulation, StoredStack
from pfljax.engine.offload_programs import Programs, StackPrograms
from pfljax.engine.population import DevicePopulation
from pfljax.engine.records import Owner
from pfljax.runs import checkpoint, config, folder
from pfljax.runs.checkpoint import Meta
from pfljax.runs.settings import Experiment
from pfljax.runtime.files import StoreError
from pfljax.simulate.simulation import Simulation


def open_population(
    sim: Simulation,
    experiment: Experiment,
    path: Path,
    saved: Meta | None,
    writable: bool = True,
    public: ClientData | None = None,
) -> Population:
    """Opens the clients of the run in `path`, as they were at a checkpoint.

    Args:
      sim: the compiled functions of the run.
      experiment: its settings.
      path: its folder.
      saved: the metadata of the checkpoint; None before the first one.
      writable: whether rounds will be run; otherwise states are only read.
      public: the server's examples, on the devices; None if it has none.

    Raises:
      StoreError: the folder of the store is missing, damaged or of another run.
    """
    compiled = functools.partial(sim.rounds, public=public)
    if sim.paging is None:
        return DevicePopulation(compiled, sim.setting.groups)
    if jax.process_count() > 1:
        raise StoreError(
            f"state_storage is {experiment.state_storage!r}, which works in one "
            "process only; choose 'device' for several processes"
        )
    checkpoints = path / "checkpoints"
    return StoredPopulation(
        programs=sim.paging,
        compiled=compiled,
        stacks=_open_stacks(sim.paging, experiment, path, saved, writable),
        kept=functools.partial(_list_kept, checkpoints, experiment.keep_checkpoints),
        asynchronous=sim.rounds if isinstance(sim.rounds, AsyncRounds) else None,
    )


def _open_stacks(
    programs: Programs,
    experiment: Experiment,
    path: Path,
    saved: Meta | None,
    writable: bool,
) -> list[StoredStack]:
    """Opens the clients of each stack, as they were at a checkpoint."""
    key = jax.random.key(experiment.seed)
    kept = checkpoint.saved_rounds(path / "checkpoints")[-experiment.keep_checkpoints :]
    round_ = saved.round if saved else 0
    checksums = saved.clients if saved else None
    if not isinstance(checksums, list):
        checksums = [checksums] * len(programs.stacks)
    several = programs.setting.groups is not None
    folders = records.store_folders(path, len(checksums) if several else None)
    stacks = []
    for stack, clients, checksum in zip(
        programs.stacks, folders, checksums, strict=True
    ):
        store = _open_store(stack, experiment, clients, round_, writable)
        store.restore(round_, checksum)
        if writable:
            store.keep(kept)
        stacks.append(StoredStack(stack, store, key, stack.params(key)))
    return stacks


def open_to_read(sim: Simulation, path: Path, state: RunState) -> Population:
    """Opens the clients of a run as they were at a state that its folder has saved."""
    saved = None
    if sim.paging is not None:
        saved = checkpoint.read_meta(path / "checkpoints", int(state.round))
    experiment = folder.read_config(path)
    return open_population(sim, experiment, path, saved, writable=False)


def _open_store(
    programs: StackPrograms,
    experiment: Experiment,
    clients: Path,
    round_: int,
    writable: bool,
) -> HostStore | DiskStore:
    """Opens the store in the folder `clients`; a new one before the first round."""
    owner = Owner(
        store=experiment.state_storage,
        config=config.digest(experiment),
        clients=len(programs.members),
        layout=programs.layout,
    )
    exists = records.read_description(clients, owner) is not None
    # After a checkpoint, a new store would replace trained states by first ones.
    if not exists and (round_ or not writable):
        raise StoreError(f"{clients} has no store.json; {records.GO_ON}")
    if experiment.state_storage == "host":
        return HostStore(clients, owner)
    return DiskStore(clients, owner, experiment.keep_checkpoints, writable)


def _list_kept(checkpoints: Path, keep: int, round_: int) -> list[int]:
    """The rounds of the checkpoints that are kept after this one is saved."""
    return sorted({*checkpoint.saved_rounds(checkpoints), round_})[-keep:]
