"""The same rounds on 1, 2, 4 and 8 devices: python on_devices.py FILE.

A process of its own, for JAX counts devices when it starts.
"""

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np

import toy
from pfljax import engine, evaluate, mesh, selection
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.ifca import ifca
from pfljax.algorithms.scaffold import scaffold
from pfljax.algorithms.superfed import superfed
from pfljax.types import Local

DEVICES = {
    fedavg: (1, 4),
    scaffold: (1, 2),
    ifca: (1, 4),
    superfed: (1, 8),
}
CLIENTS, COHORT = 7, 5  # 7 is no multiple of any number of devices
EXCHANGES = r" ((?:all|reduce|collective)-[a-z-]*[a-z])(?:-start)?\("


def clients():
    """(train, test) of the clients."""
    return (
        part._replace(offset=part.offset[:CLIENTS], size=part.size[:CLIENTS])
        for part in toy.ragged()
    )


def play(method, devices, width=1, select=None):
    """What is left after one round and after three, and the exchanges of a round."""
    task, local = toy.classifier(), Local(0.1, 4, epochs=2)
    grid = mesh.make(devices) if devices > 1 else None
    select = select or selection.uniform(COHORT, CLIENTS)
    setting = engine.Setting(method(task, local), local, select, width, grid)
    rows = mesh.padded(CLIENTS, grid)
    train, test = (mesh.place(grid, part) for part in clients())
    init = jax.jit(lambda key: engine.init(setting.algorithm, task, rows, key))
    first = init(jax.random.key(0))
    first = jax.device_put(first, mesh.shardings(grid, first))
    program = engine.compile_rounds(setting, 4).lower(first, train, 1).compile()
    found = {"exchanges": re.findall(EXCHANGES, program.as_text())}
    for rounds in (1, 3):
        count = mesh.place(grid, jnp.int32(rounds))
        state, history = program(toy.copy(first), train, count)
        judged = {}
        if method is superfed:  # its clients and its server have models
            judged = evaluate.judge(setting, evaluate.View("personal"), width)(
                state, state.clients, jnp.arange(CLIENTS), train, test
            )
            one = test._replace(offset=test.offset[:1], size=test.size[:1])
            judge = evaluate.judge_server(setting, task)
            judged["server"] = judge(state.server, one)["loss"]
        own = jax.tree.map(lambda leaf: leaf[:CLIENTS], state.clients)
        found[f"clients {rounds}"] = listed(own)
        found[f"server {rounds}"] = listed((state.server, history, judged))
    return found


def listed(tree):
    """The leaves as lists; JSON keeps each bit of a float."""
    return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(tree)]


def main():
    """Plays every method on its numbers of devices."""
    jax.config.update("jax_num_cpu_devices", 8)
    found = {m.__name__: {d: play(m, d) for d in DEVICES[m]} for m in DEVICES}
    by_size = selection.by_size(COHORT, np.asarray(next(clients()).size))
    found["by_size"] = {d: play(fedavg, d, 2, by_size) for d in (1, 2)}
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
