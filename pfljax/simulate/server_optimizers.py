"""A method whose server steps its model by an optimizer of the settings."""

from typing import Any

from pfljax import algorithms, registry
from pfljax.core import server_step, tree
from pfljax.core.communication import shapes_of_model, shapes_of_server
from pfljax.core.types import Algorithm, Task
from pfljax.runs.settings import Experiment


def options(experiment: Experiment) -> dict[str, Any]:
    """The server's optimizer as an option, of methods that step by one themselves."""
    chosen = experiment.server_optimizer
    if chosen.name == "none":
        return {}
    factory = algorithms.method(experiment.algorithm.name)
    return registry.select_context(factory, server_optimizer=str(chosen))


def with_optimizer(
    experiment: Experiment, algorithm: Algorithm, task: Task, num_clients: int
) -> Algorithm:
    """The method, whose aggregate is the slope of an optimizer where one is given.

    Raises:
      ValueError: what the server keeps is no model, so that no step goes towards it.
    """
    chosen = experiment.server_optimizer
    if chosen.name == "none" or options(experiment):
        return algorithm
    mode = experiment.mode
    if mode.name != "sync":
        raise ValueError(
            f"server_optimizer is given, but mode {str(mode)!r} moves the server "
            "itself; leave one of the two out (fedbuff has server_lr)"
        )
    _check_keeps_model(experiment.algorithm.name, algorithm, task, num_clients)
    return server_step.optimize(algorithm, server_step.by_name(str(chosen)))


def _check_keeps_model(
    name: str, algorithm: Algorithm, task: Task, num_clients: int
) -> None:
    """Refuses a server that is neither a model nor a part of one."""
    state = tree.paths(shapes_of_server(algorithm, task, num_clients))
    model = tree.paths(shapes_of_model(task))
    of_model = all(_is_same(leaf, model.get(path)) for path, leaf in state.items())
    if not state or not of_model or algorithm.then is not None:
        raise ValueError(
            f"server_optimizer is given, but what the server of {name} keeps is not "
            "one model, which an optimizer could step; leave it out, or choose a "
            "method whose server averages a model, such as fedavg"
        )


def _is_same(leaf: Any, other: Any) -> bool:
    return other is not None and (leaf.shape, leaf.dtype) == (other.shape, other.dtype)
