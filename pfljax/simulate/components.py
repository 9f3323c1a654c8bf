"""Makes the parts of a run from its settings: task and setting."""

from collections.abc import Callable
from typing import Any

import jax
from flax import linen as nn

from pfljax import algorithms, models
from pfljax.core import factories
from pfljax.core.components import Component, is_own
from pfljax.core.kinds import Scoring
from pfljax.core.types import Algorithm, Task
from pfljax.engine import Setting, mesh
from pfljax.runs import components
from pfljax.runs.settings import Experiment
from pfljax.runtime.programs import Same, memoize
from pfljax.simulate import (
    architectures,
    channels,
    clocks,
    participants,
    server_optimizers,
    training,
)
from pfljax.simulate.shape import Shape

# Clients under one vmap, by platform; None is the whole cohort. On CPUs a loop was
# fastest for every model (experiments/speed/REPORT.md); docs/speed.md has the reasons.
WIDTHS = {"cpu": 1}


def make_task(experiment: Experiment, shape: Shape) -> Task:
    """The model of the experiment for this shape, the first one of several.

    All methods have the same object, so that programs of the task alone are shared.
    """
    return make_tasks(experiment, shape)[0]


def make_tasks(experiment: Experiment, shape: Shape) -> list[Task]:
    """The models of the experiment, one for each architecture."""

    of_data = (
        shape.num_classes,
        shape.input_shape,
        shape.shift,
        shape.scale,
        experiment.precision,
        shape.kind,
        experiment.loss,
        # A notebook may define a function again.
        tuple(components.list_own(experiment).values()),
    )

    def make(choice: Component, proxy: Component | None) -> Task:
        try:
            return _task(choice, proxy, *of_data)
        except ValueError as error:
            if not experiment.models:
                raise
            raise ValueError(f"models has {choice}: {error}") from None

    choices = architectures.distinct_models(experiment)
    if not choices:
        choices = [_resolve(experiment, shape)]
    proxy = architectures.find_proxy(experiment, make)
    tasks = [make(choice, proxy) for choice in choices]
    if len(tasks) == 1:
        return tasks
    return linked_tasks(tasks[0]._replace(peers=tuple(tasks)))


def linked_tasks(task: Task) -> list[Task]:
    """The tasks of all architectures of the federation, each with all as its peers."""
    if not task.peers:
        return [task]
    return list(_linked_tasks(tuple(map(Same, task.peers))))


@memoize
def _linked_tasks(tasks: tuple[Same, ...]) -> tuple[Task, ...]:
    """The linked tasks, the same objects for the same arguments."""
    return architectures.link_tasks(tuple(task.value for task in tasks))


@memoize
def _task(
    choice: Component,
    proxy: Component | None,
    num_classes: int,
    input_shape: tuple[int, ...],
    shift: Any,
    scale: Any,
    precision: str,
    kind: str,
    loss: Component,
    own: tuple[Callable, ...],
) -> Task:
    of_data = num_classes, input_shape, shift, scale, precision, kind, loss, own
    task = models.task(
        models.model(choice.name, num_classes, **choice.options),
        input_shape,
        shift=shift,
        scale=scale,
        precision=precision,
        kind=kind,
        loss=loss,
    )
    if is_own(choice.name):
        models.check_task(task, input_shape, num_classes, kind)
    if proxy is None:
        return task
    return task._replace(proxy=_task(proxy, None, *of_data))


def make_network(experiment: Experiment, shape: Shape, number: int = 0) -> nn.Module:
    """The Flax module of the model, or of the architecture of this number."""
    several = architectures.distinct_models(experiment)
    default = [_resolve(experiment, shape)]
    choice = (several or default)[number]
    return models.model(choice.name, shape.num_classes, **choice.options)


def resolve_model(
    experiment: Experiment,
    input_shape: tuple[int, ...],
    kind: str = "classes",
    num_classes: int = 0,
) -> Component:
    """The model of the settings, or the one that "auto" selects for this shape."""
    if experiment.model.name != "auto":
        return experiment.model
    if kind == "tokens":
        return Component("char_lstm", {"vocab": num_classes, "each": True})
    if kind == "ratings":
        raise ValueError(
            "model is 'auto', which does not know how many users and items there are; "
            "choose model matrix_factorization:users=...,items=..."
        )
    # Both have a body and a head, so that every method supports them.
    is_grey = len(input_shape) <= 2 or input_shape[-1] == 1
    return Component("mlp" if is_grey else "gn_cnn")


def _resolve(experiment: Experiment, shape: Shape) -> Component:
    of_data = shape.input_shape, shape.kind, shape.num_classes
    return resolve_model(experiment, *of_data)


def resolve_width(experiment: Experiment) -> int | None:
    """The width in the settings, or that of the platform."""
    if experiment.width is not None:
        return experiment.width
    return WIDTHS.get(jax.default_backend())


def make_setting(experiment: Experiment, task: Task, shape: Shape) -> Setting:
    """The setting of a run; its numbers may be traced, as in a sweep."""
    tasks = linked_tasks(task)
    local = training.make_local(experiment)
    factory = algorithms.method(experiment.algorithm.name)
    options = experiment.algorithm.options
    options |= factories.select_context(factory, rounds=experiment.rounds)
    options |= dict(shape.for_method)
    options |= server_optimizers.options(experiment)

    through = channels.make_channel(experiment, shape.num_clients)

    def make(task: Task) -> Algorithm:
        changed = training.change_task(experiment, task, shape.input_shape)
        algorithm = training.build(experiment, changed, local, options, shape)
        algorithm = server_optimizers.with_optimizer(
            experiment, algorithm, task, shape.num_clients
        )
        return channels.with_memory(through, algorithm, task, shape)

    groups = architectures.make_groups(experiment, tasks, make, shape)
    algorithm = make(task) if groups is None else groups.algorithms[0]
    known = dict(shape.for_selection)
    drawn = participants.make_selection(experiment, shape.num_clients, known, task)
    setting = Setting(
        algorithm=algorithm,
        local=local,
        selection=drawn,
        width=resolve_width(experiment),
        mesh=make_mesh(experiment),
        channel=channels.with_shapes(through, algorithm, task, shape),
        groups=groups,
        scoring=Scoring(task.kind, task.example_losses, shape.metrics, shape.most),
    )
    setting = clocks.with_clock(experiment, setting, task, shape)
    channels.check(experiment, setting)
    if setting.clock is None or not participants.asks_seconds(experiment):
        return setting
    known["seconds"] = clocks.seconds_of_round(setting, known["sizes"])
    timed = participants.make_selection(experiment, shape.num_clients, known, task)
    return setting._replace(selection=timed)


def make_mesh(experiment: Experiment) -> mesh.Grid | None:
    """The devices that share the cohort; None for one device."""
    count = experiment.devices
    # A mesh of one device would compile another program without need.
    if count is None or count == 1:
        return None
    return mesh.make(count, experiment.pin_clients)
