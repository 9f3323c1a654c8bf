"""Trains the runs of a group with asynchronous rounds, one after another.

The events of a run are computed on the host and differ from run to run, so that no vmap
can hold several runs. The same numbers are traced as in synchronous runs: all runs
share four programs.
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
    """The programs that all runs share; `inputs` are those of one run."""

    cohorts: asynchronous.AsyncRounds  # of the first run
    first: Any  # inputs -> the state before the first round
    rounds: Any  # (inputs, state, train, window, count, public) -> state, history
    evaluate: Any  # (inputs, state, clients) -> metrics and quantities
    path: Any  # (inputs, state, clients) -> metrics between the endpoints


def run_all(
    experiment: Experiment,
    shape: Shape,
    data: Data,
    inputs: Inputs,
    task: Task | None = None,
) -> Iterator[tuple[np.ndarray, Outcome]]:
    """Yields (index i[1], outcome) of each run, as `program.run_all` does."""
    model = task or components.make_task(experiment, shape)
    size.check_model(model, free_bytes(1))
    first = jax.tree.map(lambda leaf: leaf[0], inputs)
    programs = _programs(experiment, shape, model, first)
    data = jax.device_put(data)
    for run in range(len(inputs.seed)):
        values = jax.tree.map(lambda leaf, run=run: leaf[run], inputs)
        setting = make_setting(experiment, shape, model, values)
        clients = take_clients(data, values.federation)
        outcome = _train(experiment, setting, programs, values, clients)
        yield np.array([run]), jax.tree.map(lambda leaf: leaf[None], outcome)


def _train(
    experiment: Experiment,
    setting: engine.Setting,
    programs: Programs,
    inputs: Inputs,
    clients: Clients,
) -> Outcome:
    """Trains and evaluates one run, as `one_run.one_run` does."""
    counts = np.diff([0, *evaluations(experiment)])
    # All runs share the program that draws cohorts; its own rounds are not compiled.
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
        by_evaluation.append(jax.device_get(programs.evaluate(inputs, state, clients)))
    loss, seconds = jax.tree.map(lambda *parts: np.concatenate(parts), *by_round)
    metrics, reported = jax.tree.map(lambda *parts: np.stack(parts), *by_evaluation)
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
    """The programs of a group of runs; `inputs` are those of its first run."""
    at_most = int(np.diff([0, *evaluations(experiment)]).max())
    setting_of = functools.partial(make_setting, experiment, shape, task)

    def first(inputs: Inputs) -> RunState:
        key = jax.random.key(inputs.seed)
        return engine.init(setting_of(inputs), task, shape.num_clients, key)

    def rounds(
        inputs: Inputs,
        state: RunState,
        train: ClientData,
        window: Window,
        count: Array,
        public: ClientData | None,
    ) -> Any:
        setting = setting_of(inputs)
        return versions.rounds(setting, at_most, state, train, window, count, public)

    def evaluate_run(inputs: Inputs, state: RunState, clients: Clients) -> Any:
        setting = setting_of(inputs)
        metrics = evaluate(setting, task, state, clients, views(setting.algorithm))
        return metrics, quantities(setting, task, state)

    def path(inputs: Inputs, state: RunState, clients: Clients) -> Any:
        return evaluate_mixture(setting_of(inputs), task, state, clients)

    return Programs(
        cohorts=asynchronous.compile_rounds(setting_of(inputs), at_most),
        first=jax.jit(first),
        rounds=jax.jit(rounds, donate_argnums=1),
        evaluate=jax.jit(evaluate_run),
        path=jax.jit(path),
    )
