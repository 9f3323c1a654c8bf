"""Which runs of a sweep share a compiled program.

Numbers that a program takes as inputs are traced: runs that differ in nothing else
share it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pfljax.core.types import Task
from pfljax.models import check_task
from pfljax.runs.config import UNHASHED
from pfljax.runs.settings import Experiment, flat
from pfljax.simulate import components
from pfljax.simulate.components import Shape
from pfljax.sweep.points import Point

NUMBERS = ("lr", "lr_decay", "momentum", "weight_decay")


class Traced(NamedTuple):
    """In what the runs of one program may differ, beside their seeds."""

    settings: tuple[str, ...]
    options: tuple[str, ...]  # of the method
    cohort: bool


class Group(NamedTuple):
    """Points of one program."""

    experiment: Experiment  # what they share; its cohort is the largest
    shape: Shape
    traced: Traced
    points: list[Point]


def grouped(points: Sequence[Point], task: Task | None = None) -> list[Group]:
    """The points by the program that runs them, in order of the first of each.

    First as if all swept numbers were traced, then by those that the method, tried once
    a kind, lets be traced. SuPerFed over mu and start: both are numbers, but `start` is
    looked at, for its range is checked: points of one start, and any mu, are a group.
    """
    tried: dict[Any, Traced] = {}  # first pass: by all that is no swept number
    found: dict[Any, list[tuple[Point, Traced]]] = {}  # second: by what is not traced
    for point in points:
        e, shape = (
            point.experiment,
            components.shape_of(point.experiment, point.federation),
        )
        numbers = _numbers(point)
        rest = _static(e, numbers), shape
        if rest not in tried:
            options = [n for n in numbers.options if _traceable(e, shape, task, n)]
            tried[rest] = numbers._replace(options=tuple(options))
        key = _static(e, tried[rest]), shape
        if key not in found:
            _check_built(e, shape, task)
        found.setdefault(key, []).append((point, tried[rest]))
    return [
        Group(
            same.replace(
                cohort=max(p.experiment.participation.cohort for p, _ in members)
            ),
            shape,
            members[0][1],
            [point for point, _ in members],
        )
        for (same, shape), members in found.items()
    ]


def _numbers(point: Point) -> Traced:
    """All numbers among the swept names."""
    e, names = point.experiment, point.values
    options = [n for n, value in e.method.hyper if n in names and type(value) is float]
    uniform = e.participation.selection.name == "uniform"
    cut = "cohort" in names and uniform and not e.participation.stragglers
    return Traced(tuple(n for n in NUMBERS if n in names), tuple(options), cut)


def _traceable(
    experiment: Experiment, shape: Shape, task: Task | None, name: str
) -> bool:
    """Whether the method is built without a look at the value of this option."""
    model = task or components.make_task(experiment, shape)

    def built(value: Any) -> None:
        hyper = dict(experiment.method.hyper) | {name: value}
        components.make_setting(
            experiment.replace(hyper=hyper, devices=None), model, shape
        )

    try:
        jax.eval_shape(built, jax.ShapeDtypeStruct((), np.float32))
    except jax.errors.ConcretizationTypeError:
        return False
    return True


def _check_built(experiment: Experiment, shape: Shape, task: Task | None) -> None:
    """Raises, before anything runs, what the method says of its options."""
    if task is not None:
        check_task(task, shape.input_shape, shape.num_classes)
    model = task or components.make_task(experiment, shape)
    components.make_setting(experiment.replace(devices=None), model, shape)


def _static(experiment: Experiment, traced: Traced) -> Experiment:
    """What of the experiment its program depends on; 1 for a cohort that is cut."""
    default = Experiment()
    same: Any = flat(default, (*UNHASHED, *traced.settings))
    same |= {"cohort": 1} if traced.cohort else {}
    hyper = {k: v for k, v in experiment.method.hyper if k not in traced.options}
    return experiment.replace(**same, hyper=hyper, seed=0)
