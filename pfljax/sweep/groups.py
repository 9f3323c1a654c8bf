"""Groups the runs of a sweep by the compiled program that they share.

A program takes numbers as inputs, which are traced. Runs that differ in these numbers
and in their seeds alone share a program.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax.core.components import Component
from pfljax.core.types import Task
from pfljax.engine import Setting
from pfljax.runs.settings import UNHASHED, Experiment
from pfljax.runtime.programs import Same
from pfljax.simulate import architectures, clocks, components, malicious, model_checks
from pfljax.simulate.shape import Shape, make_shape
from pfljax.sweep.points import Point
from pfljax.sweep.pool import count_ood, public_shapes

NUMBERS = ("lr", "lr_decay", "momentum", "weight_decay")


class Traced(NamedTuple):
    """The numbers in which runs of one program may differ, beside their seeds."""

    settings: tuple[str, ...]
    options: tuple[str, ...]  # of the method
    cohort: bool


class Group(NamedTuple):
    """Points of one program."""

    experiment: Experiment  # what they share; its cohort is the largest
    shape: Shape
    traced: Traced
    points: list[Point]


def group_points(points: Sequence[Point], task: Task | None = None) -> list[Group]:
    """The points by the program that runs them, in order of the first of each.

    A swept number is traced if the method can be built without its value. In a sweep of
    IFCA over `clusters` and `lr`, `clusters` is the length of an axis, so that all
    points with the same `clusters` and any `lr` form a group.
    """
    # A method is built by trial once for each kind of point: that takes long.
    traced_by_kind: dict[Any, Traced] = {}
    groups: dict[Any, Group] = {}
    for point in points:
        _add_point(point, task, traced_by_kind, groups)
    return [_with_largest_cohort(group) for group in groups.values()]


def _add_point(
    point: Point,
    task: Task | None,
    traced_by_kind: dict[Any, Traced],
    groups: dict[Any, Group],
) -> None:
    """Adds the point to the group of its program, a new one if need be."""
    experiment = point.experiment
    shape = make_shape(experiment, point.federation)
    numbers = _numbers(point)
    kind = (_static(experiment, numbers), shape)
    if kind not in traced_by_kind:
        options = _traceable_options(experiment, shape, task, numbers.options)
        traced_by_kind[kind] = numbers._replace(options=options)
    traced = traced_by_kind[kind]
    if traced.options:
        # A method checks the values of its options, which no program has.
        _make(experiment, shape, task)
    static = _static(experiment, traced)
    ood = count_ood(point.federation, experiment.ood_examples)
    program = (static, shape, ood, public_shapes(point.federation))
    if program not in groups:
        setting = _check_built(experiment, shape, task)
        clocks.check_deadline(setting, point.federation.train.size)
        malicious.malicious_share(setting.channel, point.federation)  # checks it
        groups[program] = Group(static, shape, traced, [])
    tasks = [task] if task else components.make_tasks(experiment, shape)
    model_checks.check_tokens(tasks, point.federation)
    groups[program].points.append(point)


def _with_largest_cohort(group: Group) -> Group:
    """The group with slots for the largest of its cohorts, as it is compiled."""
    cohorts = [point.experiment.cohort for point in group.points]
    experiment = group.experiment.replace(cohort=max(cohorts))
    return group._replace(experiment=experiment)


def _numbers(point: Point) -> Traced:
    """All numbers among the swept names."""
    swept = point.values
    participation = point.experiment
    settings = [name for name in NUMBERS if name in swept]
    options = []
    for name, value in point.experiment.algorithm.args:
        # A bool or an int selects a program; a float is a number within one.
        if name in swept and type(value) is float:
            options.append(name)
    # Only a uniform cohort is the first part of a larger one with the same key.
    uniform = participation.selection.name == "uniform"
    # Asynchronous rounds have as many slots as the cohort has clients.
    is_sync = participation.mode.name == "sync"
    can_be_cut = uniform and is_sync and not participation.stragglers
    return Traced(
        settings=tuple(settings),
        options=tuple(options),
        cohort="cohort" in swept and can_be_cut,
    )


def _traceable_options(
    experiment: Experiment, shape: Shape, task: Task | None, names: Sequence[str]
) -> tuple[str, ...]:
    """The options whose values the method does not need while it is built."""
    model = task or components.make_task(experiment, shape)
    traceable = []
    for name in names:
        if _traceable(experiment, shape, model, name):
            traceable.append(name)
    return tuple(traceable)


def _traceable(experiment: Experiment, shape: Shape, model: Task, name: str) -> bool:
    """Whether the method can be built without the value of this option."""

    def build(value: Any) -> None:
        method = experiment.algorithm.with_options({name: value})
        changed = experiment.replace(algorithm=method, devices=None)
        components.make_setting(changed, model, shape)

    number = jax.ShapeDtypeStruct((), np.float32)
    # An abstract number has no value: a factory that compares it raises.
    try:
        jax.eval_shape(build, number)
    except jax.errors.ConcretizationTypeError:
        return False
    return True


def _check_built(experiment: Experiment, shape: Shape, task: Task | None) -> Setting:
    """The setting of a run, after the method has checked its options."""
    if task is not None:
        model_checks.check_task(Same(task), shape.input_shape, shape.num_classes)
    model, setting = _make(experiment, shape, task)
    name = experiment.algorithm.name
    model_checks.check_own(name, setting, model, shape)
    architectures.client_traffic(setting, model, shape)
    return setting


def _make(
    experiment: Experiment, shape: Shape, task: Task | None
) -> tuple[Task, Setting]:
    """The model and the setting of a run."""
    model = task or components.make_task(experiment, shape)
    # Each run trains on one device.
    on_one_device = experiment.replace(devices=None)
    return model, components.make_setting(on_one_device, model, shape)


def _static(experiment: Experiment, traced: Traced) -> Experiment:
    """The settings that the program depends on; a traced cohort is 1."""
    # All that may differ is set to its default, so that equal programs compare equal.
    default = Experiment()
    names = (*UNHASHED, *traced.settings, "seed")
    same: dict[str, Any] = {name: getattr(default, name) for name in names}
    if traced.cohort:
        same["cohort"] = 1
    method = experiment.algorithm
    options = [pair for pair in method.args if pair[0] not in traced.options]
    return experiment.replace(algorithm=Component(method.name, tuple(options)), **same)
