"""The compiled evaluations of the clients of one architecture."""

from typing import Any

import jax

from pfljax.core.communication import shapes_of_model
from pfljax.core.types import Algorithm, Task
from pfljax.engine import Setting, mesh
from pfljax.engine.paging import programs as paging
from pfljax.evaluation.apart import (
    ends_of_clients,
    judge_between,
    judge_many,
    judge_one,
    models_of_clients,
)
from pfljax.evaluation.programs import judge, judge_path, model_of_server
from pfljax.evaluation.views import View
from pfljax.runtime.programs import Same, kept
from pfljax.simulate.architectures import task_of_server


def make_judge(setting: Setting, task: Task, view: str, block: int) -> Any:
    """The compiled evaluation of this view; `block` clients are judged at once.

    In two programs where the method's models are the task's: which parameters are
    judged, small and of the method, and their metrics, the same for all methods.
    """
    algorithm = setting.algorithm
    shared = Same(task), setting.local.batch_size, setting.mesh
    if view == "server":
        _, *others = shared
        of_server = task_of_server(algorithm, task)
        judge_model = _judge_one(Same(of_server), *others)
        server_model = jax.jit(model_of_server(setting))
        return lambda server, *rows: judge_model(server_model(server), *rows)
    if not judged_apart(algorithm, task):
        return judge(setting, View(view), block)
    judge_models = _judge_many(*shared, block)
    models = models_of_clients(setting, View(view), block)

    def judge_view(state, clients, ids, train, test, foreign=None, public=None):
        return judge_models(models(state, clients, ids, train, public), test, foreign)

    return judge_view


def make_path(setting: Setting, task: Task, block: int) -> Any:
    """The evaluation of the paths between endpoints, as `judge_path` has it."""
    if not judged_apart(setting.algorithm, task):
        return judge_path(setting, block)
    judge_ends = _judge_between(
        Same(task), setting.local.batch_size, setting.mesh, block
    )
    ends = ends_of_clients(setting, block)

    def judge_paths(state, clients, ids, rows, foreign=None):
        return judge_ends(ends(state, clients, ids), rows, foreign)

    return judge_paths


def block_judged(setting: Setting, task: Task) -> int:
    """Clients judged in one call, by what it holds of each: its state and its model."""
    algorithm = setting.algorithm
    client = paging.client_shape(algorithm, task)
    if algorithm.personal is None or not judged_apart(algorithm, task):
        return paging.block(client)
    model = shapes_of_model(task)
    # Of a path both ends lie in memory.
    models = (model, model) if algorithm.endpoints else (model,)
    return paging.block((client, *models))


def judged_apart(algorithm: Algorithm, task: Task) -> bool:
    """Whether clients' models are parameters of the task."""
    return algorithm.predict is task.predict


@kept
def _judge_one(task: Same, batch_size: int, grid: mesh.Grid | None) -> Any:
    return judge_one(task.value, batch_size, grid)


@kept
def _judge_many(
    task: Same, batch_size: int, grid: mesh.Grid | None, width: int | None
) -> Any:
    return judge_many(task.value, batch_size, grid, width)


@kept
def _judge_between(
    task: Same, batch_size: int, grid: mesh.Grid | None, width: int | None
) -> Any:
    return judge_between(task.value, batch_size, grid, width)
