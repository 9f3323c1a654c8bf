"""The same rounds from every store: python stored.py FOLDER does so on two devices."""

import sys
from pathlib import Path

import jax

if __name__ == "__main__":  # JAX counts devices when it starts
    jax.config.update("jax_num_cpu_devices", 2)

import numpy as np

from pfljax import engine, selection
from pfljax.algorithms.global_model.scaffold import scaffold
from pfljax.algorithms.interpolation.superfed import superfed
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.conformance import toy
from pfljax.core.types import Local
from pfljax.engine import mesh
from pfljax.engine.paging import host, pages, records
from pfljax.engine.paging.disk import DiskStore

METHODS = scaffold, superfed
STORES = "host", "disk"
CLIENTS, COHORT, LONGEST = 8, 2, 3  # at most 6 of 8 clients on the devices
TRAIN, _ = toy.ragged()
CUTS = ((3, 3, 3), (1, 2, 3, 1, 1, 1), (2, 3, 1, 3))  # of nine rounds in calls


def game(method, grid=None):
    """(setting, its compiled rounds, programs of a store, the first state)."""
    task, local = toy.classifier(), Local(0.1, 8)
    setting = engine.Setting(
        method(task, local), local, selection.uniform(COHORT, CLIENTS), 1, grid
    )
    client = pages.client_shape(setting, task)
    programs = pages.programs(setting, task, client, CLIENTS, LONGEST)
    rows = mesh.padded(CLIENTS, grid)
    first = jax.jit(lambda key: engine.init(setting, task, rows, key))
    first = first(jax.random.key(0))
    return setting, engine.compile_rounds(setting, LONGEST), programs, first


def open_store(kind, folder, programs, keep=2):
    """An empty store in this folder, which is made."""
    folder.mkdir(parents=True)
    owner = records.owner(kind, "abc", CLIENTS, programs.layout)
    if kind == "host":
        return host.HostStore(folder / "clients", owner, programs.layout)
    return DiskStore(folder / "clients", owner, programs.layout, keep, True)


def open_stream(kind, folder, run, programs):
    """A population that has not met anybody."""
    key = jax.random.key(0)
    place = open_store(kind, folder, programs)
    params = programs.params(key)
    return pages.Stream(programs, run, place, key, params, lambda round_: [round_])


def play(setting, run, first, cut, people=None):
    """(server, all clients, training losses) after the rounds of these calls."""
    train = mesh.place(setting.mesh, TRAIN)
    state = first if people is None else first._replace(clients=())
    state = jax.device_put(toy.copy(state), mesh.shardings(setting.mesh, state))
    losses = []
    for count, ahead in zip(cut, (*cut[1:-1], 1, 0), strict=True):
        if people is None:
            state, trained = run(state, train, count)
        else:  # the last call but one was expected to be shorter
            state, trained = people.rounds(state, train, count, ahead)
        losses += np.asarray(trained["loss"])[:count].tolist()
    clients = people.states(np.arange(CLIENTS)) if people else state.clients
    own = jax.tree.map(lambda leaf: np.asarray(leaf)[:CLIENTS], clients)
    return state.server, own, losses


def check(method, folder, grid=None):
    """Plays from the devices and from the stores, however cut: the same bits."""
    setting, run, programs, first = game(method, grid)
    assert programs.resident == COHORT * LONGEST < CLIENTS
    wanted = play(setting, run, first, CUTS[0])
    for kind in STORES:
        for index, cut in enumerate(CUTS):
            people = open_stream(kind, folder / f"{kind}{index}", run, programs)
            toy.assert_same(play(setting, run, first, cut, people), wanted)
    return run, programs


if __name__ == "__main__":
    check(ditto, Path(sys.argv[1]), mesh.make(2))
