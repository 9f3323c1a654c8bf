"""Clients of several architectures: their models and methods, from the settings.

The engine has them as `engine.setting.Groups`. A method supports them if its server,
messages and uploads have the same shapes for every model; this is checked here.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from pfljax.channel import Traffic, count_traffic
from pfljax.core import tree
from pfljax.core.communication import (
    shapes_of_model,
    shapes_of_server,
    trace_exchanges,
)
from pfljax.core.components import Component
from pfljax.core.types import Algorithm, Task
from pfljax.engine.contract import first_change
from pfljax.engine.setting import Groups, Setting
from pfljax.engine.state import init_stacks
from pfljax.models.model_groups import FEATURES, GROUPS
from pfljax.runs.settings import Experiment
from pfljax.runtime.programs import Same, memoize
from pfljax.simulate.shape import Shape

Make = Callable[[Task], Algorithm]  # the method of a model
MakeTask = Callable[[Component, Component | None], Task]  # of a model, with this proxy


def list_models(experiment: Experiment) -> list[Component]:
    """The models in the settings; a named group stands for all its models."""
    choices = []
    for choice in experiment.models:
        if choice.name not in GROUPS:
            choices.append(choice)
            continue
        features = FEATURES.get(choice.name)
        options = {"features": features} if features else {}
        choices += [Component(name, options) for name in GROUPS[choice.name]]
    return choices


def distinct_models(experiment: Experiment) -> list[Component]:
    """The distinct models of the settings, in the order of their first clients."""
    return list(dict.fromkeys(list_models(experiment)))


def find_proxy(experiment: Experiment, make_task: MakeTask) -> Component | None:
    """The model of the proxy; None if it is the model of all clients."""
    chosen = experiment.proxy
    if chosen.name != "auto":
        return chosen
    known = distinct_models(experiment)
    if not known:
        return None
    return min(known, key=lambda choice: _size(Same(make_task(choice, None))))


@memoize
def _size(task: Same) -> int:
    """Bytes of the parameters."""
    return tree.nbytes(shapes_of_model(task.value))


def make_groups(
    experiment: Experiment,
    tasks: list[Task],
    make: Make,
    shape: Shape,
) -> Groups | None:
    """The groups of clients with equal models; None if all clients have one model.

    Raises:
      ValueError: a model would have no client, or the method needs one model of all.
    """
    every = list_models(experiment)
    if not every:
        return None
    if len(every) > shape.num_clients:
        raise ValueError(
            f"models has {len(every)} names, but {shape.num_clients} clients train: "
            "some architecture would have no client; give fewer, or more clients"
        )
    known = distinct_models(experiment)
    groups = Groups(
        algorithms=tuple(make(task) for task in tasks),
        tasks=tuple(tasks),
        pattern=tuple(known.index(choice) for choice in every),
    )
    change = find_difference(groups, shape)
    if change is not None:
        which, text = change
        raise ValueError(
            f"{experiment.algorithm.name} cannot train these models together: what "
            f"{known[which]} and {known[0]} send and share is not alike ({text}); "
            "choose models of one group (pfljax list models), or a method for several, "
            "such as lg_fedavg or fedproto (docs/models.md)"
        )
    return groups


def find_difference(groups: Groups, shape: Shape) -> tuple[int, str] | None:
    """(a group, how its server or traffic differs from the first one's), if any."""
    # The servers come first: they differ in most methods, and traffic is slow to trace.
    for shared in (_server, _traffic):
        known = [
            shared(algorithm, task, shape)
            for algorithm, task in zip(groups.algorithms, groups.tasks, strict=True)
        ]
        for group, sent in enumerate(known):
            change = first_change(known[0], sent)
            if change is not None:
                return group, change
    return None


def _server(algorithm: Algorithm, task: Task, shape: Shape) -> Any:
    """The shapes of the server by path."""
    return tree.paths((shapes_of_server(algorithm, task, shape.num_clients),))


def _traffic(algorithm: Algorithm, task: Task, shape: Shape) -> Any:
    """The shapes of the traffic by path; {} if the method lets them differ."""
    if algorithm.architecture is not None:
        return {}
    sent = trace_exchanges(algorithm, task, shape.num_clients, shape.input_shape)
    # By path, a tree that was split has no empty places.
    return tree.paths(sent)


def client_traffic(
    setting: Setting, task: Task, shape: Shape
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes down and up of each client in a round, i64[C], by its architecture.

    Raises:
      ValueError: uploads of the method cannot go through the channel.
    """
    down, up = np.zeros((2, shape.num_clients), np.int64)
    for stack in init_stacks(setting._replace(mesh=None), task, shape.num_clients):
        sent = count_traffic(
            stack.algorithm,
            stack.task,
            shape.num_clients,
            shape.input_shape,
            setting.channel,
        )
        down[stack.ids] = sent.down
        up[stack.ids] = sent.up
    return down, up


def mean_traffic(setting: Setting, task: Task, shape: Shape) -> Traffic:
    """The mean bytes of a client's exchange in a round."""
    down, up = client_traffic(setting, task, shape)
    count = shape.num_clients
    return Traffic(down=round(int(down.sum()) / count), up=round(int(up.sum()) / count))


def task_of_server(algorithm: Algorithm, task: Task) -> Task:
    """The task of the server's model, which may differ from that of the clients.

    It is one of the task's peers: HeteroFL's server has the largest.
    """
    model = algorithm.server_model
    if model is None or not task.peers:
        return task

    shapes = jax.eval_shape(model, shapes_of_server(algorithm, task, 1))
    for peer in task.peers:
        if first_change(shapes_of_model(peer), shapes) is None:
            return peer
    return task


def link_tasks(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """The tasks of a federation, each with all of them as its peers."""
    return tuple(
        task._replace(peers=tasks, number=number) for number, task in enumerate(tasks)
    )
