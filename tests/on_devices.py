"""The same rounds on 1, 2, 4 and 8 devices: python on_devices.py FILE.

A process of its own, for JAX counts devices when it starts.
"""

import json
import re
import sys
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import algorithms, engine, selection
from pfljax.algorithms.clustering.ifca import ifca
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.global_model.scaffold import scaffold
from pfljax.algorithms.interpolation.superfed import superfed
from pfljax.conformance import toy
from pfljax.core.aggregation import Averaging
from pfljax.core.types import Local
from pfljax.engine import mesh, placement, summing
from pfljax.evaluation import programs

WAYS = {  # settings of the mesh, by name
    "1": {"devices": 1},
    "2": {"devices": 2},
    "4": {"devices": 4},
    "8": {"devices": 8},
    "2 pinned": {"devices": 2, "pin": True},
    "4 pinned": {"devices": 4, "pin": True, "width": None},
    "8 pinned": {"devices": 8, "pin": True},
}
PLAYED = {  # which of them a method is played in: each is compared with "1"
    fedavg: ("1", "4"),
    scaffold: ("1", "2", "4 pinned"),
    ifca: ("1", "4", "2 pinned"),
    superfed: ("1", "8", "8 pinned"),
}
# Methods whose server is a mean of the uploads: one of each kind of client state.
SUMMED = ("fedavg", "fedper", "superfed", "lg_fedavg")
CLIENTS, COHORT = 7, 5  # 7 is no multiple of any number of devices
# An operation between devices in a compiled program's text, and its name.
EXCHANGES = r" ((?:ragged-)?(?:all-|reduce-scatter|collective-)[a-z-]*?)(?:-start)?\("


def clients():
    """(train, test) of the clients."""
    return (
        part._replace(offset=part.offset[:CLIENTS], size=part.size[:CLIENTS])
        for part in toy.ragged()
    )


def placed(grid):
    """(train, test) on the devices."""
    if grid is not None and grid.pin_clients:
        home = placement.owners(grid.size, np.zeros(CLIENTS))
        return placement.place(grid, dict(enumerate(clients())), home).values()
    return (mesh.place(grid, part) for part in clients())


def play(method, devices, width=1, select=None, pin=False, lengths=(1, 3)):
    """The final state after rounds of these `lengths`, and the exchanges of a round."""
    task, local = toy.classifier(), Local(0.1, 4, epochs=2)
    grid = mesh.make(devices, pin) if devices > 1 else None
    select = select or selection.uniform(COHORT, CLIENTS)
    setting = engine.Setting(method(task, local), local, select, width, grid)
    padded = mesh.round_up(CLIENTS, grid)
    train, test = placed(grid)
    init = jax.jit(lambda key: engine.init(setting, task, padded, key))
    first = jax.eval_shape(init, jax.random.key(0))
    places = mesh.shardings(grid, first)
    if lengths:
        first = jax.device_put(init(jax.random.key(0)), places)
    else:  # of what only compiles, shapes are enough
        first = jax.tree.map(shape_on, first, places)
    program = engine.compile_rounds(setting, 4).lower(first, train, 1).compile()
    found = {"exchanges": re.findall(EXCHANGES, program.as_text())}
    shards = train.examples.y.addressable_shards
    found["held"] = [len(shard.data) for shard in shards]
    for rounds in lengths:
        count = mesh.place(grid, jnp.int32(rounds))
        state, history = program(toy.copy(first), train, count)
        evaluated = {}
        if method is superfed:  # its clients and its server have models
            evaluated = programs.evaluate_clients(setting, "personal", width)(
                state, state.clients, jnp.arange(CLIENTS), train, test
            )
            different, whose = placement.distinct(grid, test)
            evaluate_server = programs.evaluate_server(setting, task)
            evaluated["server"] = evaluate_server(state.server, different)["loss"][
                whose
            ]
        own = jax.tree.map(lambda leaf: leaf[:CLIENTS], state.clients)
        found[f"clients {rounds}"] = listed(own)
        found[f"server {rounds}"] = listed((state.server, history, evaluated))
    return found


def shape_on(leaf, sharding):
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def averages(method):
    """Whether the method's server is a mean of the uploads."""
    aggregate = method(toy.classifier(), Local(0.1, 4)).aggregate
    return isinstance(aggregate, Averaging)


def stacked_and_summed(method, **way):
    """Two rounds on two devices in which one client is absent, both ways."""

    def work(state, key, ids, steps):
        return steps, (jnp.arange(COHORT) != 1).astype(jnp.float32)

    select = selection.uniform(COHORT, CLIENTS)._replace(work=work)
    found = {}
    for name, size in (("stacked", summing.STACKED_BYTES), ("summed", 0)):
        with mock.patch.object(summing, "STACKED_BYTES", size):
            found[name] = play(method, 2, select=select, lengths=(2,), **way)
    return found


def listed(tree):
    """The leaves as lists; JSON keeps each bit of a float."""
    return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(tree)]


def main():
    """Plays every method in its ways."""
    jax.config.update("jax_num_cpu_devices", 8)
    found = {m.__name__: {w: play(m, **WAYS[w]) for w in PLAYED[m]} for m in PLAYED}
    by_size = selection.by_size(COHORT, np.asarray(next(clients()).size))
    found["by_size"] = {w: play(fedavg, int(w), 2, by_size) for w in ("1", "2")}
    every = algorithms.methods().items()
    found["means"] = {
        name: stacked_and_summed(method)
        for name, method in every
        if name in SUMMED and averages(method)
    }
    found["means"]["of two lanes"] = stacked_and_summed(fedavg, width=2)
    found["means"]["pinned"] = stacked_and_summed(fedavg, pin=True)
    found["every"] = {name: play(m, 2, lengths=())["exchanges"] for name, m in every}
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
