"""Numbers that are arguments of compiled programs: other values compile nothing.

In a plain run they are constants, which XLA folds, so that both differ in the last bit:
training losses of six methods by at most 1.3e-7.
"""

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from pfljax import engine
from pfljax.core.components import Component
from pfljax.core.types import Task
from pfljax.engine import Setting, asynchronous
from pfljax.engine.asynchronous import AsyncRounds
from pfljax.engine.state import init_stacks
from pfljax.runs.settings import Experiment
from pfljax.runtime.programs import Same
from pfljax.simulate.components import make_setting
from pfljax.simulate.program_parts import (
    Architecture,
    make_architectures,
    make_dissimilarity,
    make_rounds,
)
from pfljax.simulate.shape import Shape

SETTINGS = ("lr", "lr_decay", "momentum", "weight_decay")
Numbers = dict[str, Any]  # f32 of settings and of the method's options, by name


@dataclass(frozen=True)
class Kind:
    """Experiments that share programs, as the key of a cache: their numbers may differ.

    With no names it is a single experiment.
    """

    shared: Experiment  # without the numbers
    names: tuple[str, ...]
    example: Experiment = field(compare=False)


@dataclass(frozen=True)
class Bound:
    """A compiled function of (numbers, ...), with the numbers of an experiment."""

    program: Any
    numbers: Numbers

    def __call__(self, *args: Any, **more: Any) -> Any:
        """Calls the function."""
        return self.program(self.numbers, *args, **more)

    def lower(self, *args: Any, **more: Any) -> Any:
        """The function lowered for these shapes, as a jitted one."""
        return self.program.lower(self.numbers, *args, **more)


def numbers_of(experiment: Experiment, names: Collection[str]) -> Numbers:
    """The numbers of these names, as arguments of a program."""
    values = vars(experiment) | experiment.algorithm.options
    return {name: np.float32(values[name]) for name in names}


def with_numbers(experiment: Experiment, numbers: Mapping[str, Any]) -> Experiment:
    """The experiment with these numbers, which may be traced."""
    settings = {name: numbers[name] for name in numbers if name in SETTINGS}
    options = {name: numbers[name] for name in numbers if name not in SETTINGS}
    method = experiment.algorithm.with_options(options)
    return experiment.replace(algorithm=method, **settings)


def make_kind(
    experiment: Experiment, wanted: Collection[str], task: Task, shape: Shape
) -> Kind:
    """The kind of an experiment, of which the `wanted` numbers are arguments.

    An option is one if the method can be built without its value. The `clusters` of
    IFCA, say, are the length of an axis.
    """
    names = [name for name in SETTINGS if name in wanted]
    # A bool or an int selects a program; a float is a number within one.
    options = experiment.algorithm.args
    names += [
        name for name, value in options if name in wanted and type(value) is float
    ]
    candidates = Kind(without(experiment, names), tuple(names), experiment)
    found = _find_traceable(candidates, Same(task), shape)
    return Kind(without(experiment, found), found, experiment)


@functools.lru_cache(maxsize=256)
def _find_traceable(kind: Kind, task: Same, shape: Shape) -> tuple[str, ...]:
    """The names of the kind whose values the method does not need while it is built."""
    # Each run may have devices of its own.
    experiment = kind.example.replace(devices=None)

    def can_trace(name: str) -> bool:
        def build(value: Any) -> None:
            make_setting(with_numbers(experiment, {name: value}), task.value, shape)

        # An abstract number has no value: a factory that compares it raises.
        try:
            jax.eval_shape(build, jax.ShapeDtypeStruct((), np.float32))
        except jax.errors.ConcretizationTypeError:
            return False
        return True

    return tuple(name for name in kind.names if name in SETTINGS or can_trace(name))


def without(experiment: Experiment, names: Collection[str]) -> Experiment:
    """The experiment with its settings of these names at their defaults."""
    method = experiment.algorithm
    options = {n: v for n, v in method.args if n not in names}
    default = Experiment()
    settings = {n: getattr(default, n) for n in names if n in SETTINGS}
    bare = Component(method.name, options, method.build)
    return experiment.replace(algorithm=bare, **settings)


def _make_lift(
    kind: Kind, task: Task, shape: Shape
) -> Callable[..., Callable[..., Any]]:
    """A function that compiles the functions of a setting for all of the kind.

    lift(make, **options) is `make(setting)`, jitted as a function of the numbers and
    its arguments.
    """

    def lift(make: Callable[[Setting], Callable[..., Any]], **options: Any) -> Any:
        def program(numbers: Numbers, *args: Any, **more: Any) -> Any:
            experiment = with_numbers(kind.example, numbers)
            return make(make_setting(experiment, task, shape))(*args, **more)

        return jax.jit(program, **options)

    return lift


def lift(sim: Any, kind: Kind, shape: Shape, num_clients: int) -> Any:
    """The `Simulation` with functions that take the numbers of the kind first."""
    task, longest, experiment = sim.task, sim.longest, kind.example
    traced = _make_lift(kind, task, shape)
    views = [*sim.architectures[0].evaluate]
    width = sim.setting.width or experiment.cohort

    def of_clients(setting: Setting, index: int) -> Architecture:
        made = make_architectures(setting, task, num_clients, views, width)
        return made[index]

    architectures = []
    for index, each in enumerate(sim.architectures):
        evaluate = {
            view: traced(lambda s, i=index, v=view: of_clients(s, i).evaluate[v])
            for view in views
        }
        quantities = each.quantities and traced(
            lambda s, i=index: of_clients(s, i).quantities
        )
        each = each._replace(evaluate=evaluate, quantities=quantities)
        architectures.append(each)
    donated = {"donate_argnums": 1}  # the state
    if isinstance(sim.rounds, AsyncRounds):
        program = traced(
            lambda s: asynchronous.compile_rounds(s, longest).program, **donated
        )
        rounds = replace(sim.rounds, program=program)
    else:
        rounds = traced(lambda s: make_rounds(s, longest), **donated)
    return sim._replace(
        init=traced(lambda s: partial(engine.init, s, task, num_clients)),
        rounds=rounds,
        architectures=tuple(architectures),
        dissimilarity=sim.dissimilarity
        and traced(lambda s: make_dissimilarity(experiment, s, task)),
    )


def bind(sim: Any, experiment: Experiment, shape: Shape, numbers: Numbers) -> Any:
    """The `Simulation` of a kind with the numbers of one of its experiments."""
    setting = make_setting(experiment, sim.task, shape)
    bound = partial(Bound, numbers=numbers)
    stacks = init_stacks(setting, sim.task, shape.num_clients)
    architectures = [
        each._replace(
            setting=setting._replace(algorithm=stack.algorithm, groups=None),
            evaluate={view: bound(f) for view, f in each.evaluate.items()},
            quantities=each.quantities and bound(each.quantities),
        )
        for each, stack in zip(sim.architectures, stacks, strict=True)
    ]
    if isinstance(sim.rounds, AsyncRounds):
        rounds = replace(sim.rounds, program=bound(sim.rounds.program))
    else:
        rounds = bound(sim.rounds)
    return sim._replace(
        setting=setting,
        init=bound(sim.init),
        rounds=rounds,
        architectures=tuple(architectures),
        dissimilarity=sim.dissimilarity and bound(sim.dissimilarity),
    )
