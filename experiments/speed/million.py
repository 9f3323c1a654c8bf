"""Populations larger than memory: clients on disk, and a few rounds on devices.

    python experiments/speed/million.py memory       1,000,000 clients, cohorts of 1,000
    python experiments/speed/million.py disk         100,000 clients with a TwoNN each
    python experiments/speed/million.py population   seconds of a round by population

These were measured on one of two busy CPU cores:

  memory      FedPer has a personal head of 2,000 parameters for each client, 8 GB in
              all. 48 rounds of 1,000 clients trained 46,913 clients, took 0.44 s each,
              and needed at most 1.07 GB of memory and 0.57 GB of disk.
  disk        Local training of a TwoNN has 199,210 parameters for each client. The
              4,883 clients that trained take 3.91 GB of disk, in files of 239.1 GB
              with their holes, and 0.97 GB of memory.
  population  FedPer as above with cohorts of 100 takes 0.032, 0.024, 0.033 and 0.024 s
              per round with 1,000, 10,000, 100,000 and 1,000,000 clients.
"""

import resource
import shutil
import statistics
import time
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from tyro.conf import Positional

from pfljax import Experiment
from pfljax.core.types import ClientData, Examples
from pfljax.data import Federation
from pfljax.runtime.devices import use_compile_cache
from pfljax.simulate import simulation
from pfljax.simulate.population import open_population

POOL = 2000  # rows of all data, which clients share
ROWS = 20  # of a client
HEAD = Experiment(  # a personal head of 199 x 10 + 10 = 2,000 parameters
    algorithm="fedper", model="mlp:hidden=(199,)", cohort=1000, rounds=48,
    epochs=None, steps=2, state_storage="disk", eval_every=48,
)  # fmt: skip
WHOLE = Experiment(  # 784-200-200-10: 199,210 parameters, all of them personal
    algorithm="local", model="mlp:hidden=(200,200)", cohort=100, rounds=50,
    epochs=None, steps=1, state_storage="disk", eval_every=50,
)  # fmt: skip


def federation(clients: int, inputs: int) -> Federation:
    """Clients whose rows overlap in one small pool; the last two test."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, POOL)
    x = rng.normal(size=(POOL, inputs)) + labels[:, None] * (np.arange(inputs) % 10 > 4)
    pool = Examples(jnp.asarray(x, jnp.float32), jnp.asarray(labels, jnp.int32))
    start = np.arange(clients) % (POOL - ROWS)

    def part(first: int, size: int) -> ClientData:
        offset = jnp.asarray(start + first, jnp.int32)
        return ClientData(pool, offset, jnp.full(clients, size, jnp.int32))

    names = tuple(map(str, range(10)))
    return Federation(
        train=part(0, ROWS - 2),
        validation=part(0, 0),
        test=part(ROWS - 2, 2),
        num_classes=10,
        shift=0.0,
        scale=1.0,
        name="synthetic",
        class_names=names,
        manifest={},
    )


def play(experiment: Experiment, federation: Federation, path: Path) -> dict[str, Any]:
    """Runs all rounds without evaluations; what was measured."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    sim = simulation.simulation(experiment, federation)
    store: Any = open_population(sim, experiment, path, None)
    state = sim.init(jax.random.key(0))
    rounds = experiment.rounds
    done = 0
    seconds = []
    losses = []
    while done < rounds:
        count = min(sim.longest, rounds - done)
        # The rounds of the next call: their clients are read while these train.
        ahead = min(sim.longest, rounds - done - count)
        start = time.perf_counter()
        state, trained = store.rounds(state, federation.train, count, ahead)
        losses += jax.device_get(trained)["loss"][:count].tolist()
        seconds.append((time.perf_counter() - start) / count)
        done += count
    start = time.perf_counter()
    store.settle()
    store.stacks[0].store.save(done)
    flush = time.perf_counter() - start
    file = (path / "clients" / "records.bin").stat()
    return {
        "seconds": statistics.median(seconds[1:] or seconds),
        "flush": flush,
        "rounds a call": sim.longest,
        "met": int((np.asarray(state.participations) > 0).sum()),
        "apparent": file.st_size,
        "used": file.st_blocks * 512,
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "loss": (losses[0], losses[-1]),
        "accuracy": sampled(sim, store, state, federation),
    }


def sampled(sim: Any, store: Any, state: Any, federation: Federation) -> float:
    """Mean test accuracy of a hundred clients, most of whom have never taken part."""
    ids = np.linspace(0, federation.num_clients - 1, 100).astype(int)
    parts = [
        part._replace(offset=part.offset[ids], size=part.size[ids])
        for part in (federation.train, federation.test)
    ]
    evaluate = sim.architectures[0].evaluate["personal"]
    metrics = evaluate(state, store.states(state, ids), jnp.asarray(ids), *parts)
    return float(metrics["accuracy"].mean())


def show(clients: int, facts: dict[str, Any]) -> None:
    """Prints a line."""
    print(
        f"{clients:9,} clients, {facts['met']:6,} met: {facts['seconds']:.3f} s a round"
        f" ({facts['rounds a call']} a call), {facts['used'] / 1e9:.3f} GB used of"
        f" {facts['apparent'] / 1e9:.1f}, {facts['resident'] / 1e9:.2f} GB resident,"
        f" flushed in {facts['flush']:.1f} s, loss {facts['loss'][0]:.3f} to"
        f" {facts['loss'][1]:.3f}, accuracy {facts['accuracy']:.3f}",
        flush=True,
    )


def main(
    what: Positional[Literal["memory", "disk", "population"]], out: str = "runs/million"
) -> None:
    """Measures one of the three."""
    use_compile_cache()
    path = Path(out)
    cases = {
        "memory": [(HEAD, 1_000_000, 64)],
        "disk": [(WHOLE, 100_000, 784)],
        "population": [
            (HEAD.replace(cohort=100, rounds=96, eval_every=16), clients, 64)
            for clients in (1_000, 10_000, 100_000, 1_000_000)
        ],
    }
    for experiment, clients, inputs in cases[what]:
        experiment = experiment.replace(clients=clients)
        show(clients, play(experiment, federation(clients, inputs), path))
        shutil.rmtree(path)


if __name__ == "__main__":
    tyro.cli(main)
