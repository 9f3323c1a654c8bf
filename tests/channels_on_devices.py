"""Rounds with channels on one device and several: python channels_on_devices.py FILE.

A process of its own, for JAX counts devices when it starts.
"""

import json
import sys

import jax
import jax.numpy as jnp

from on_devices import CLIENTS, COHORT, listed, placed
from pfljax import channel, engine, selection
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.conformance import toy
from pfljax.core import components
from pfljax.core.communication import trace_exchanges
from pfljax.core.types import Local
from pfljax.engine import mesh

# A client's memory, losses and attackers, states of the server's.
CASES = (
    ("random_k:share=0.3,feedback=True", "lost:share=0.3"),
    ("adaptive_clip:multiplier=1.0", "sign_flip:attackers=0.3"),
    ("alie:attackers=0.3", "centred_clip:radius=0.1"),
)
WAYS = {"1": {"devices": 1}, "2": {"devices": 2}, "4 pinned": {"devices": 4}}


def play(names, devices, pin):
    """(server and channel, clients) after three rounds, and programs compiled."""
    task = toy.classifier()
    local = Local(0.1, 4, epochs=2)
    grid = mesh.make(devices, pin) if devices > 1 else None
    algorithm = ditto(task, local)
    through = channel.make([components.parse(name) for name in names])
    exchanges = trace_exchanges(algorithm, task, CLIENTS, (3,))
    through, algorithm = channel.fit(through, algorithm, exchanges)
    select = selection.uniform(COHORT, CLIENTS)
    setting = engine.Setting(algorithm, local, select, 1, grid, through)
    train, _ = placed(grid)
    first = jax.jit(lambda key: engine.init(setting, task, CLIENTS, key))
    state = first(jax.random.key(0))
    state = jax.device_put(state, mesh.shardings(grid, state))
    program = engine.compile_rounds(setting, 4)
    for count in (1, 2):
        state, _ = program(state, train, mesh.place(grid, jnp.int32(count)))
    clients = jax.tree.map(lambda leaf: leaf[:CLIENTS], state.clients)
    of_all = listed((state.server, state.channel))
    return {"all": of_all, "clients": listed(clients)}


def main():
    """Plays every case in every way."""
    jax.config.update("jax_num_cpu_devices", 4)
    played = {
        " ".join(names): {
            way: play(names, **given, pin="pinned" in way)
            for way, given in WAYS.items()
        }
        for names in CASES
    }
    with open(sys.argv[1], "w") as file:
        json.dump(played, file)


if __name__ == "__main__":
    main()
