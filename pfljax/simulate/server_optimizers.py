"""Applies the setting `server_optimizer` to a method."""

from typing import Any

from pfljax import algorithms
from pfljax.core import factories, server_step, tree
from pfljax.core.communication import shapes_of_model, shapes_of_server
from pfljax.core.requirements import require
from pfljax.core.types import Algorithm, Task
from pfljax.engine.contract import first_change
from pfljax.runs.settings import Experiment


def options(experiment: Experiment) -> dict[str, Any]:
    """The server's optimizer as an option, for methods that have such an option."""
    chosen = experiment.server_optimizer
    if chosen.name == "none":
        return {}
    factory = algorithms.method(experiment.algorithm.name)
    return factories.select_context(factory, server_optimizer=str(chosen))


def with_optimizer(
    experiment: Experiment, algorithm: Algorithm, task: Task, num_clients: int
) -> Algorithm:
    """The method, whose server steps by the optimizer, if one is set.

    Raises:
      ValueError: the state of the server is not a model, or the mode is asynchronous.
    """
    chosen = experiment.server_optimizer
    if chosen.name == "none" or options(experiment):
        return algorithm
    mode = str(experiment.mode)
    expected = "'sync', since server_optimizer is set (fedbuff has server_lr)"
    require("mode", mode, experiment.mode.name == "sync", expected)
    _check_keeps_model(experiment.algorithm.name, algorithm, task, num_clients)
    return server_step.optimize(algorithm, server_step.by_name(str(chosen)))


def _check_keeps_model(
    name: str, algorithm: Algorithm, task: Task, num_clients: int
) -> None:
    """Refuses a server whose state is neither a model nor a part of one."""
    state = tree.paths(shapes_of_server(algorithm, task, num_clients))
    model = tree.paths(shapes_of_model(task))
    kept = {path: model[path] for path in state if path in model}
    if not state or first_change(kept, state) or algorithm.then is not None:
        raise ValueError(
            f"server_optimizer is set, but the server of {name} does not keep one "
            "model, which an optimizer could step; leave it out, or choose a method "
            "whose server averages models, such as fedavg"
        )
