"""Runs of one experiment with asynchronous rounds, one after another.

Events differ by run and are computed on the host, so no vmap holds several runs. What
is traced in synchronous runs is traced here as well: all runs share three programs.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax import engine
from pfljax.core.types import Array, ClientData, RunState, Task
from pfljax.engine import asynchronous, versions
from pfljax.engine.versions import Window
from pfljax.evaluation.views import views
from pfljax.runs.settings import Experiment
from pfljax.runtime.memory import free_bytes
from pfljax.simulate import components, size
from pfljax.simulate.shape import Shape
from pfljax.sweep.one_run import (
    Clients,
    Inputs,
    Outcome,
    evaluate,
    evaluate_mixture,
    evaluations,
    make_setting,
    quantities,
    take_clients,
)
from pfljax.sweep.pool import Data


class Programs(NamedTuple):
    """What all runs share; `inputs` are those of one run."""

    cohorts: asynchronous.AsyncRounds  # of the first run
    first: Any  # inputs -> the state before the first round
    rounds: Any  # (inputs, state, train, window, count, public) -> state, history
    judge: Any  # (inputs, state, clients) -> metrics and quantities
    path: Any  # (inputs, state, clients) -> metrics between the endpoints


def run_all(
    experiment: Experiment,
    shape: Shape,
    data: Data,
    inputs: Inputs,
    task: Task | None = None,
) -> Iterator[tuple[np.ndarray, Outcome]]:
    """Run by run: (which, i[1], what it gave), as `pfljax.sweep.program.run_all`."""
    model = task or components.make_task(experiment, shape)
    size.check_model(model, free_bytes(1))
    first = jax.tree.map(lambda leaf: leaf[0], inputs)
    programs = _programs(experiment, shape, model, first)
    data = jax.device_put(data)
    for run in range(len(inputs.seed)):
        of_run = jax.tree.map(lambda leaf, run=run: leaf[run], inputs)
        setting = make_setting(experiment, shape, model, of_run)
        clients = take_clients(data, of_run.federation)
        outcome = _one_run(experiment, setting, programs, of_run, clients)
        yield np.array([run]), jax.tree.map(lambda leaf: leaf[None], outcome)


def _one_run(
    experiment: Experiment,
    setting: engine.Setting,
    programs: Programs,
    inputs: Inputs,
    clients: Clients,
) -> Outcome:
    """All rounds of one run, evaluated as `pfljax.sweep.one_run.one_run`."""
    counts = np.diff([0, *evaluations(experiment)])
    # Cohorts are drawn by one program for all runs; its rounds are never compiled.
    rounds = dataclasses.replace(
        programs.cohorts,
        setting=setting,
        program=functools.partial(programs.rounds, inputs),
    )
    state = programs.first(inputs)
    by_round = []
    by_evaluation = []
    for count in counts:
        state, history = rounds(state, clients.train, int(count), public=clients.public)
        measured = history["loss"][:count], history["seconds"]
        by_round.append(jax.device_get(measured))
        by_evaluation.append(jax.device_get(programs.judge(inputs, state, clients)))
    loss, seconds = jax.tree.map(lambda *parts: np.concatenate(parts), *by_round)
    metrics, reported = jax.tree.map(lambda *rows: np.stack(rows), *by_evaluation)
    return Outcome(
        loss=loss,
        seconds=seconds,
        metrics=metrics,
        quantities=reported,
        path=jax.device_get(programs.path(inputs, state, clients)),
    )


def _programs(
    experiment: Experiment, shape: Shape, task: Task, inputs: Inputs
) -> Programs:
    """The programs of a group of runs, compiled as they are called.

    `inputs` are those of one of them.
    """
    at_most = int(np.diff([0, *evaluations(experiment)]).max())
    of_run = functools.partial(make_setting, experiment, shape, task)

    def first(inputs: Inputs) -> RunState:
        key = jax.random.key(inputs.seed)
        return engine.init(of_run(inputs), task, shape.num_clients, key)

    def rounds(
        inputs: Inputs,
        state: RunState,
        train: ClientData,
        window: Window,
        count: Array,
        public: ClientData | None,
    ) -> Any:
        setting = of_run(inputs)
        return versions.rounds(setting, at_most, state, train, window, count, public)

    def judge(inputs: Inputs, state: RunState, clients: Clients) -> Any:
        setting = of_run(inputs)
        metrics = evaluate(setting, task, state, clients, views(setting.algorithm))
        return metrics, quantities(setting, task, state)

    def path(inputs: Inputs, state: RunState, clients: Clients) -> Any:
        return evaluate_mixture(of_run(inputs), task, state, clients)

    return Programs(
        cohorts=asynchronous.compile_rounds(of_run(inputs), at_most),
        first=jax.jit(first),
        rounds=jax.jit(rounds, donate_argnums=1),
        judge=jax.jit(judge),
        path=jax.jit(path),
    )
