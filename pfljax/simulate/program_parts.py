"""The compiled functions of a simulation, each made of the setting alone."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from pfljax import engine
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import ClientData, Task
from pfljax.engine import Setting, asynchronous, offload_programs
from pfljax.engine.state import client_shape, init_stacks
from pfljax.evaluation.dissimilarity import Dissimilarity, dissimilarity
from pfljax.evaluation.passes import rows_per_pass
from pfljax.evaluation.programs import (
    evaluate_in_two,
    evaluate_server,
    predicts_as_task,
    quantities_of_clients,
)
from pfljax.evaluation.views import MIXTURE, SERVER
from pfljax.runs.settings import Experiment
from pfljax.simulate.architectures import task_of_server


class Architecture(NamedTuple):
    """The evaluation of the clients of one architecture."""

    setting: Setting  # of these clients
    task: Task
    evaluate: dict[str, Callable[..., Any]]  # by view
    quantities: Callable[..., Any] | None  # programs.quantities_of_clients


def make_architectures(
    setting: Setting, task: Task, num_clients: int, views: Sequence[str], width: int
) -> tuple[Architecture, ...]:
    """The compiled evaluations of the clients of each architecture."""
    architectures = []
    for stack in init_stacks(setting, task, num_clients):
        alone = setting._replace(algorithm=stack.algorithm, groups=None)
        architecture = Architecture(
            setting=alone,
            task=stack.task,
            evaluate=_evaluations(alone, stack.task, views, width),
            quantities=quantities_of_clients(alone, width),
        )
        architectures.append(architecture)
    return tuple(architectures)


def _evaluations(
    setting: Setting, task: Task, views: Sequence[str], width: int
) -> dict[str, Callable[..., Any]]:
    """The evaluation of each view, and of the mixture of a method with endpoints."""
    views = [*views, MIXTURE] if setting.algorithm.endpoints else views
    evaluations = {}
    for view in views:
        if view == SERVER:
            of_server = task_of_server(setting.algorithm, task)
            evaluations[view] = evaluate_server(setting, of_server)
        else:
            evaluations[view] = evaluate_in_two(setting, task, view, width)
    return evaluations


def block_size(setting: Setting, task: Task) -> int:
    """The number of clients in one call, by the memory of a client and its model."""
    algorithm = setting.algorithm
    client = client_shape(algorithm, task)
    if algorithm.personal is None or not predicts_as_task(setting, task):
        return offload_programs.block_size(client)
    model = shapes_of_model(task)
    # Both ends of a path are in memory.
    models = (model, model) if algorithm.endpoints else (model,)
    return offload_programs.block_size((client, *models))


def make_rounds(setting: Setting, longest: int) -> Callable[..., Any]:
    """The program of at most so many rounds, in the mode of the setting."""
    if setting.mode is None:
        return engine.compile_rounds(setting, longest)
    return asynchronous.compile_rounds(setting, longest)


def make_dissimilarity(
    experiment: Experiment, setting: Setting, task: Task
) -> Callable[..., Any] | None:
    """A function that measures how clients' gradients differ; None if not asked for.

    Raises:
      ValueError: the method has no model of the server.
    """
    if not experiment.dissimilarity:
        return None
    server_model = setting.algorithm.server_model
    if server_model is None:
        raise ValueError(
            "dissimilarity is of gradients at the server's model, and "
            f"{experiment.algorithm.name} has none; leave it out, or choose a method "
            "with one, such as fedprox"
        )
    at_once = rows_per_pass(setting.local.batch_size)

    def measure(server: Any, train: ClientData) -> Dissimilarity:
        return dissimilarity(task, server_model(server), train, at_once)

    return jax.jit(measure)
