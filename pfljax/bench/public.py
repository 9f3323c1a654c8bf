"""What a user's run costs beside the bare engine: W1 by `pfljax.run`.

With metrics, an evaluation every ten rounds, checkpoints and logs; after compilation,
without the report.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pfljax import data
from pfljax.bench import measure
from pfljax.bench.workloads import SEED, WORKLOADS
from pfljax.data import Federation
from pfljax.runs.checks import resolve
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices
from pfljax.simulate import simulation
from pfljax.simulate.run import run

ROUNDS = 20  # of one timed call
TEST = 96  # rows of each client beside the training rows of W1


def compare(rounds: int | None = None, repeats: int = 3) -> dict[str, Any]:
    """Seconds of `rounds` rounds bare and by `run`, in turn, and the share kept.

    None are `ROUNDS`.

    Raises:
      ValueError: no rounds or repeats.
    """
    rounds = ROUNDS if rounds is None else rounds
    measure.check_counts(rounds=rounds, repeats=repeats)
    # Before JAX starts: the settings of devices cannot be changed later.
    devices.prepare()
    clients = federation()
    bare = []
    public = []
    with tempfile.TemporaryDirectory() as folder:
        base = experiment(rounds)
        # Both use the programs that this call compiles.
        _public(base, clients, Path(folder) / "compile")
        for i in range(repeats):
            bare.append(_bare(base, clients))
            public.append(_public(base, clients, Path(folder) / str(i)))
    return {
        "rounds": rounds,
        "bare": bare,
        "public": public,
        "kept": float(np.median(bare) / np.median(public)),
    }


def sentence(seconds: dict[str, Any]) -> str:
    """The result of `compare`, in one line."""
    bare = min(seconds["bare"])
    public = min(seconds["public"])
    return (
        f"{seconds['rounds']} rounds of W1: bare {bare:.2f} s, by pfljax.run "
        f"{public:.2f} s (the fastest of {len(seconds['bare'])} each); "
        f"of the bare speed {seconds['kept']:.0%} is kept (medians)"
    )


def experiment(rounds: int) -> Experiment:
    """W1 as a run."""
    workload = WORKLOADS["W1"]
    return Experiment(
        dataset="random",
        model=workload.model,
        clients=workload.clients,
        cohort=workload.cohort,
        rounds=rounds,
        epochs=workload.epochs,
        batch_size=workload.batch_size,
        lr=workload.learning_rate,
        eval_every=10,
    )


def federation() -> Federation:
    """W1's clients with `TEST` test rows each."""
    workload = WORKLOADS["W1"]
    each = (workload.rows or 0) + TEST
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((workload.clients * each, *workload.shape), np.float32)
    y = rng.integers(0, workload.num_classes, len(x))
    client = np.repeat(np.arange(workload.clients), each)
    arrays = data.from_arrays(x, y, client=client)
    return data.federate(
        arrays,
        "natural",
        num_clients=None,
        seed=0,
        test=TEST / each,
        validation=0.0,
    )


def _bare(experiment: Experiment, federation: Federation) -> float:
    sim = simulation.simulation(resolve(experiment), federation)
    train = simulation.placed(sim, federation).train
    state = sim.init(jax.random.key(0))
    start = time.perf_counter()
    for _ in range(experiment.participation.rounds // sim.longest):
        state, _ = sim.rounds(state, train, sim.longest)
        jax.block_until_ready(state)
    return time.perf_counter() - start


def _public(experiment: Experiment, federation: Federation, out: Path) -> float:
    start = time.perf_counter()
    run(experiment.replace(out=str(out)), federation, quiet=True, report=False)
    return time.perf_counter() - start
