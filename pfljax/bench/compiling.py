"""What each method costs to compile, as a run of it does, at two networks."""

import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pfljax import algorithms, data, models
from pfljax.bench.catalogue import WORKLOADS, Workload
from pfljax.bench.measure import check_counts, spread
from pfljax.bench.workloads import SEED, shrink
from pfljax.core.types import ClientData
from pfljax.data import Federation
from pfljax.engine import mesh
from pfljax.engine.population import DevicePopulation
from pfljax.runs.checks import resolve
from pfljax.runs.folder import write_json
from pfljax.runs.settings import Experiment
from pfljax.runtime import compiling, devices, files
from pfljax.runtime.programs import forget_programs
from pfljax.simulate import evaluation, simulation

NAME = "compile"
DEEPEST = ("resnet18", "resnet9")  # the first that the zoo has
SCALE = 0.1
COLUMNS = (
    "model", "method", "rounds: trace s", "lower s", "compile s", "first state s",
    "evaluation s", "whole s (min to max)",
)  # fmt: skip
NOTE = (
    "CPU seconds of all cores, medians, without a cache of compiled programs. First "
    "state and evaluation: tracing, lowering and compiling together. Evaluation: the "
    "server's model and those of clients, where the method has them."
)

Result = dict[str, Any]


def run(
    names: Sequence[str],
    *,
    rounds: int | None = None,
    repeats: int = 3,
    methods: Sequence[str] = (),
    peer: str | None = None,
    out: str | Path = "runs/bench",
    scale: float = SCALE,
    networks: Sequence[str] = (),
) -> str:
    """A Markdown table of what was measured; compile.json in `out`.

    Args:
      names: "compile" alone.
      rounds: must be None: a program of few rounds is one of many.
      repeats: times that all programs of a method are compiled.
      methods: none: all of them.
      peer: must be None.
      out: the folder to write to.
      scale: of the workloads; a program does not grow with the clients.
      networks: of TwoNN and the deepest network of the zoo; none: both.

    Raises:
      ValueError: for other names, a peer, rounds, or no repeats.
    """
    if list(names) != [NAME] or peer is not None or rounds is not None:
        raise ValueError(
            f"{NAME} is timed alone, without other workloads, a peer or rounds; give "
            "it a command of its own"
        )
    check_counts(repeats=repeats)
    folder = files.make_folder(Path(out))
    devices.prepare()
    # Before the first program: later JAX would not ask again.
    jax.config.update("jax_enable_compilation_cache", False)
    results = []
    refusals = []
    for workload in workloads(networks, min(scale, SCALE)):
        clients = federation(workload)
        for method in methods or algorithms.methods():
            job = experiment(workload, method)
            refusal = refused(job, clients)
            if refusal:
                refusals.append(f"{workload.model}, {method}: {refusal}")
                continue
            samples = [_sample(job, clients) for _ in range(repeats)]
            results.append(_result(job, samples))
            print(" ".join(_cells(results[-1])), file=sys.stderr, flush=True)
            write_json(folder / "compile.json", {"results": results})
    return markdown(results, refusals)


def workloads(networks: Sequence[str] = (), scale: float = SCALE) -> list[Workload]:
    """Small ones: TwoNN on rows of W1, the deepest network of the zoo on images."""
    deepest = next(name for name in DEEPEST if name in models.MODELS)
    vectors = WORKLOADS["W1"]
    images = WORKLOADS["W2"]._replace(model=deepest)
    return [
        shrink(workload, scale)
        for workload in (vectors, images)
        if not networks or workload.model in networks
    ]


def federation(workload: Workload) -> Federation:
    """The clients of the workload, with test rows, and a server with a tenth."""
    rng = np.random.default_rng(SEED)
    count = workload.clients * (workload.rows or 0)
    x = rng.standard_normal((count, *workload.shape), np.float32)
    y = rng.integers(0, workload.num_classes, count)
    arrays = data.from_arrays(x, y, client=np.arange(count) % workload.clients)
    dealt = data.federate(arrays, "natural", num_clients=None, seed=0, validation=0.0)
    offset: Any = np.int32(0)
    size: Any = np.int32(count // 10)
    of_server = ClientData(dealt.train.examples, offset, size)
    return dataclasses.replace(dealt, public=of_server)


def experiment(workload: Workload, method: str) -> Experiment:
    """A run of the method on the workload; its numbers do not change a program."""
    return Experiment(
        algorithm=method,
        dataset="random",
        model=workload.model,
        clients=workload.clients,
        cohort=workload.cohort,
        rounds=1,
        epochs=1,
        batch_size=workload.batch_size,
        lr=workload.learning_rate,
    )


def refused(job: Experiment, clients: Federation) -> str:
    """Why the method does not take this model; "" where it does."""
    try:
        simulation.simulation(resolve(job), clients)
    except ValueError as error:
        return str(error)
    return ""


def _sample(job: Experiment, clients: Federation) -> dict[str, list[compiling.Work]]:
    """What is traced, lowered and compiled for the parts of a run, all made anew."""
    forget_programs()
    sim = simulation.simulation(resolve(job), clients)
    placed = simulation.placed(sim, clients)
    key = jax.random.key(0)
    with compiling.watched() as of_start:
        state = sim.init(key)
    state = jax.device_put(state, mesh.shardings(sim.setting.mesh, state))
    with compiling.watched() as of_rounds:
        # Not run: FedDF's server takes a thousand steps a round.
        rounds: Any = sim.rounds
        rounds.lower(state, placed.train, 1).compile()
    states = functools.partial(DevicePopulation(sim.rounds).states, state)
    with compiling.watched() as of_evaluation:
        evaluation.assess(sim, placed, None, state, states)
    return {"start": of_start, "rounds": of_rounds, "evaluation": of_evaluation}


def _result(job: Experiment, samples: list[dict[str, Any]]) -> Result:
    """CPU seconds: of the rounds by phase, of all else together."""
    seconds: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        seconds.setdefault(name, []).append(value)

    for sample in samples:
        whole = 0.0
        for part, works in sample.items():
            by_phase = compiling.by_phase(works)
            whole += sum(by_phase.values())
            add(part, sum(by_phase.values()))
            for phase, value in by_phase.items():
                add(f"{part}_{phase}", value)
        add("whole", whole)
    figures = {name: spread(values) for name, values in seconds.items()}
    programs = sum(compiling.programs(works) for works in samples[0].values())
    return {
        "model": str(job.method.model),
        "method": job.method.algorithm,
        "programs": programs,
        **figures,
    }


def markdown(results: list[Result], refusals: Sequence[str] = ()) -> str:
    """The table, and what stands below it: who refuses a model, and why."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, results)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    below = [f"Not compiled: {refusal}" for refusal in refusals]
    return "\n".join([*lines, "", NOTE, *below])


def _cells(result: Result) -> tuple[str, ...]:
    parts = ("rounds_trace", "rounds_lower", "rounds_compile", "start", "evaluation")
    seconds = [f"{result[part]['median']:.2f}" for part in parts]
    whole = result["whole"]
    text = f"{whole['median']:.2f} ({whole['min']:.2f} to {whole['max']:.2f})"
    return result["model"], result["method"], *seconds, text
