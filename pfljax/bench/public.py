"""What a user's run costs beside the bare engine: W1 by `pfljax.run`.

With metrics, an evaluation every ten rounds, checkpoints and logs; after compilation,
without the report. Bare are the same compiled rounds and evaluations, with the clients
put on the devices and the first state before them, and nothing else.
"""

import functools
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax import data
from pfljax.bench import measure
from pfljax.bench.catalogue import WORKLOADS
from pfljax.bench.workloads import SEED
from pfljax.data import Federation
from pfljax.engine import mesh
from pfljax.engine.population import DevicePopulation
from pfljax.runs.checks import resolve
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices, milestones
from pfljax.simulate import evaluation, simulation
from pfljax.simulate.run import run

ROUNDS = 20  # of one timed call
EVAL_EVERY = 10
TEST = 96  # rows of each client beside the training rows of W1
CLIENTS = (100, 100_000)  # W1's, and as many as share its rows
COLUMNS = (
    "clients", "bare: start s", "rounds s", "evaluations s", "run: start s", "rounds s",
    "evaluations s", "logs, checkpoints s", "end s", "over bare",
)  # fmt: skip


class Bare(NamedTuple):
    """Seconds of the compiled functions alone."""

    start: float  # clients on the devices, first state
    rounds: float
    evaluations: float


class Public(NamedTuple):
    """Seconds of a run."""

    start: float  # data, folder, first state
    rounds: float
    evaluations: float
    rest: float  # logs, checkpoints, and what lies between calls
    end: float  # the summary


def compare(
    rounds: int | None = None,
    repeats: int = 3,
    clients: Sequence[int] = CLIENTS,
) -> list[dict[str, Any]]:
    """Seconds of `rounds` rounds bare and by `run`, in turn, by the count of clients.

    None are `ROUNDS`.

    Raises:
      ValueError: no rounds or repeats.
    """
    rounds = ROUNDS if rounds is None else rounds
    measure.check_counts(rounds=rounds, repeats=repeats)
    # Before JAX starts: the settings of devices cannot be changed later.
    devices.prepare()
    of_w1 = federation()
    return [_compared(of_w1, count, rounds, repeats) for count in clients]


def _compared(
    of_w1: Federation, count: int, rounds: int, repeats: int
) -> dict[str, Any]:
    # More clients than W1 has share its rows.
    clients = of_w1.take(np.arange(count) % of_w1.num_clients)
    base = experiment(rounds).replace(clients=count)
    bare = []
    public = []
    with tempfile.TemporaryDirectory() as folder:
        # Both use the programs that this call compiles; the first rounds are slow.
        _public(base, clients, Path(folder) / "compile")
        _bare(base, clients)
        for i in range(repeats):
            # Either goes first by turns, for the machine's pace drifts.
            if i % 2 == 0:
                bare.append(_bare(base, clients))
            public.append(_public(base, clients, Path(folder) / str(i)))
            if i % 2:
                bare.append(_bare(base, clients))
    return {"clients": count, "rounds": rounds, "bare": bare, "public": public}


def table(results: list[dict[str, Any]]) -> str:
    """The results of `compare` in Markdown: medians, of `over bare` by pairs."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, results)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    first = results[0]
    note = (
        f"{first['rounds']} rounds of W1 with an evaluation every {EVAL_EVERY}; "
        f"medians of {len(first['bare'])}, in turn. Logs, checkpoints: all that is "
        "neither rounds nor evaluations."
    )
    return "\n".join([*lines, "", note])


def _cells(result: dict[str, Any]) -> tuple[str, ...]:
    bare = Bare(*np.median(result["bare"], axis=0))
    public = Public(*np.median(result["public"], axis=0))
    # Of each run beside the bare rounds next to it: hours differ by more.
    wholes = zip(result["public"], result["bare"], strict=True)
    over = [sum(whole) / sum(alone) - 1 for whole, alone in wholes]
    spread = f"{np.median(over):+.1%} ({min(over):+.1%} to {max(over):+.1%})"
    seconds = [f"{value:.2f}" for value in (*bare, *public)]
    return str(result["clients"]), *seconds, spread


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
        eval_every=EVAL_EVERY,
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


def _bare(experiment: Experiment, federation: Federation) -> Bare:
    began = time.perf_counter()
    sim = simulation.simulation(resolve(experiment), federation)
    placed = simulation.placed(sim, federation)
    state = sim.init(jax.random.key(0))
    state = jax.device_put(state, mesh.shardings(sim.setting.mesh, state))
    jax.block_until_ready((placed.train, state))
    start = time.perf_counter() - began
    population = DevicePopulation(sim.rounds)
    training = 0.0
    judging = 0.0
    for _ in range(experiment.participation.rounds // sim.longest):
        started = time.perf_counter()
        state, _ = sim.rounds(state, placed.train, sim.longest)
        jax.block_until_ready(state)
        trained = time.perf_counter()
        states = functools.partial(population.states, state)
        evaluation.assess(sim, placed, None, state, states)
        training += trained - started
        judging += time.perf_counter() - trained
    return Bare(start=start, rounds=training, evaluations=judging)


def _public(experiment: Experiment, federation: Federation, out: Path) -> Public:
    with _milestones(out.with_suffix(".jsonl")) as file:
        started = time.time()
        run(experiment.replace(out=str(out)), federation, quiet=True, report=False)
        ended = time.time()
    return parts(milestones.read(file), _calls(out), started, ended)


def parts(
    reached: list[dict[str, Any]],
    calls: list[float],
    started: float,
    ended: float,
) -> Public:
    """What a run took, by its milestones and the seconds of each call of its rounds."""
    when: dict[str, list[float]] = {}
    for line in reached:
        when.setdefault(line["name"], []).append(line["time"])
    judging = sum(when["judged"]) - sum(when["judges"])
    start = when["round"][0] - calls[0] - started
    end = ended - when["round"][-1]
    rest = ended - started - start - sum(calls) - judging - end
    return Public(
        start=start, rounds=sum(calls), evaluations=judging, rest=rest, end=end
    )


@contextmanager
def _milestones(file: Path) -> Iterator[Path]:
    """The file to which a run in this context writes its milestones."""
    os.environ[milestones.FILE] = str(file)
    try:
        yield file
    finally:
        del os.environ[milestones.FILE]


def _calls(out: Path) -> list[float]:
    """Seconds of each call of a run's rounds."""
    lines = (out / "timing.jsonl").read_text().splitlines()
    return [json.loads(line)["seconds"] for line in lines]
