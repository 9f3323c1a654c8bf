"""The same rounds from every store: python stored.py FOLDER does so on two devices."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

if __name__ == "__main__":  # JAX counts devices when it starts
    jax.config.update("jax_num_cpu_devices", 2)

import numpy as np

from pfljax import engine, models, selection
from pfljax.algorithms.decoupling.lg_fedavg import lg_fedavg
from pfljax.algorithms.global_model.scaffold import scaffold
from pfljax.algorithms.interpolation.superfed import superfed
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.conformance import toy
from pfljax.core.types import Local
from pfljax.engine import mesh, offload
from pfljax.engine.disk_store import DiskStore
from pfljax.engine.host_store import HostStore
from pfljax.engine.offload_programs import compile_programs, longest_call
from pfljax.engine.population import DevicePopulation
from pfljax.engine.records import Owner
from pfljax.engine.setting import Groups
from pfljax.engine.state import split_ids

METHODS = scaffold, superfed
STORES = "host", "disk"
CLIENTS, COHORT, LONGEST = 8, 2, 3  # at most 6 of 8 clients on the devices
TRAIN, _ = toy.ragged()
PATTERN = 0, 1, 1, 2, 0  # of architectures, with 3, 4 and 1 of the clients
CUTS = ((3, 3, 3), (1, 2, 3, 1, 1, 1), (2, 3, 1, 3))  # of nine rounds in calls


def worst(cohort, num_clients):
    """The clients whose training loss was largest when they last took part."""

    def update(losses, cohort, metrics):
        return losses.at[cohort.ids].set(metrics["loss"], mode="drop")

    return selection.Selection(
        cohort,
        choose=lambda losses, key: jnp.argsort(-losses)[:cohort],
        init=lambda: jnp.full(num_clients, 1e3),
        update=update,
    )


def game(method, grid=None, select=selection.uniform, pattern=None):
    """(setting, its compiled rounds, programs of a store, the first state).

    Clients are of several architectures where they have a `pattern`.
    """
    task, local = toy.classifier(), Local(0.1, 8)
    groups = None
    if pattern is not None:
        task, *_ = tasks = several_models()
        groups = Groups(tuple(method(each, local) for each in tasks), tasks, pattern)
    setting = engine.Setting(
        method(task, local), local, select(COHORT, CLIENTS), 1, grid, groups=groups
    )
    longest = longest_call(setting, task, CLIENTS, LONGEST)
    programs = compile_programs(setting, task, CLIENTS, longest)
    padded = CLIENTS if groups else mesh.round_up(CLIENTS, grid)
    first = jax.jit(lambda key: engine.init(setting, task, padded, key))
    first = first(jax.random.key(0))
    return setting, engine.compile_rounds(setting, LONGEST), programs, first


def several_models():
    """Three architectures with equal heads; the body of the last has no parameters."""
    bodies = (5, 3), (2, 3), ()
    return tuple(
        toy.traced_once(models.task(models.mlp(3, hidden=hidden), (3,)))
        for hidden in bodies
    )


def open_store(kind, folder, programs, keep=2):
    """An empty store in this folder, which is made."""
    folder.mkdir(parents=True)
    owner = Owner(kind, "abc", len(programs.members), programs.layout)
    if kind == "host":
        return HostStore(folder / "clients", owner)
    return DiskStore(folder / "clients", owner, keep, True)


def paged(kind, folder, run, programs):
    """A population that has not met anybody."""
    key = jax.random.key(0)
    stacks = []
    for number, stack in enumerate(programs.stacks):
        store = open_store(kind, folder / str(number), stack)
        params = stack.params(key)
        stacks.append(offload.StoredStack(stack, store, key, params))
    return offload.StoredPopulation(
        programs=programs,
        compiled=run,
        stacks=stacks,
        kept=lambda round_: [round_],
    )


def play(setting, first, cut, population):
    """(server, all clients, training losses) after the rounds of these calls."""
    train = mesh.place(setting.mesh, TRAIN)
    state = first
    if isinstance(population, offload.StoredPopulation):
        state = first._replace(clients=())
    state = jax.device_put(toy.copy(state), mesh.shardings(setting.mesh, state))
    losses = []
    # The last call is expected to be shorter than it is.
    for count, ahead in zip(cut, (*cut[1:-1], 1, 0), strict=True):
        state, trained = population.rounds(state, train, count, ahead)
        losses += np.asarray(trained["loss"])[:count].tolist()
    clients = []
    for ids in split_ids(setting, np.arange(CLIENTS)):
        states = population.states(state, ids)
        states = jax.tree.map(lambda leaf, k=ids: np.asarray(leaf)[: len(k)], states)
        clients.append(states)
    return state.server, clients, losses


def check(method, folder, grid=None, pattern=None):
    """Plays from the devices and from the stores, however cut: the same bits."""
    setting, run, programs, first = game(method, grid, pattern=pattern)
    resident = [stack.resident for stack in programs.stacks]
    sizes = [len(stack.members) for stack in programs.stacks]
    most = [min(COHORT * LONGEST, size) for size in sizes]
    assert resident == [mesh.round_up(each, grid) for each in most]
    wanted = play(setting, first, CUTS[0], DevicePopulation(run, setting.groups))
    for kind in STORES:
        for index, cut in enumerate(CUTS):
            population = paged(kind, folder / f"{kind}{index}", run, programs)
            toy.assert_same(play(setting, first, cut, population), wanted)
    return run, programs


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    check(ditto, folder, mesh.make(2))
    check(lg_fedavg, folder / "groups", mesh.make(2), pattern=PATTERN)
