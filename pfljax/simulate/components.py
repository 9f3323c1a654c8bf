"""The parts of a run, from its settings: task, local training, cohorts, setting."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import linen as nn

from pfljax import algorithms, models, registry, selection
from pfljax.core import channel
from pfljax.core.optimizers import sgd
from pfljax.core.types import Local, Task
from pfljax.data import Federation
from pfljax.engine import Setting, mesh
from pfljax.registry import Choice
from pfljax.runs.settings import Experiment, Training

# Clients under one vmap, by platform; None is the whole cohort. On CPUs a loop was
# fastest for every model (experiments/speed/REPORT.md); others have not been measured.
WIDTHS = {"cpu": 1}


class Shape(NamedTuple):
    """All that compiled functions depend on of a federation."""

    num_clients: int
    input_shape: tuple[int, ...]
    num_classes: int
    shift: Any
    scale: Any
    sizes: tuple[int, ...] | None  # training rows, where cohorts are drawn by size


def shape_of(experiment: Experiment, federation: Federation) -> Shape:
    """What the experiment's compiled functions depend on of the federation."""
    sizes = None
    if experiment.participation.selection.name == "by_size":
        sizes = tuple(np.asarray(federation.train.size).tolist())
    return Shape(
        num_clients=federation.num_clients,
        input_shape=federation.train.examples.x.shape[1:],
        num_classes=federation.num_classes,
        shift=_hashable(federation.shift),
        scale=_hashable(federation.scale),
        sizes=sizes,
    )


def _hashable(value: Any) -> Any:
    """A number, or the nested tuples of an array: a key of `lru_cache`."""
    if not isinstance(value, list):
        value = np.asarray(value).tolist()
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return value


def make_task(experiment: Experiment, shape: Shape) -> Task:
    """The model of the experiment on inputs of this shape."""
    module = make_network(experiment, shape)
    return models.task(module, shape.input_shape, shift=shape.shift, scale=shape.scale)


def make_network(experiment: Experiment, shape: Shape) -> nn.Module:
    """The layers of the model."""
    choice = experiment.method.model
    if choice.name == "auto":
        choice = Choice(default_model(shape.input_shape))
    return models.model(choice.name, shape.num_classes, **choice.kwargs)


def default_model(input_shape: tuple[int, ...]) -> str:
    """A model for rows of this shape: flat, grey or coloured images."""
    if len(input_shape) == 1:
        return "logistic"
    return "mlp" if len(input_shape) == 2 or input_shape[-1] == 1 else "gn_cnn"


def width_of(experiment: Experiment) -> int | None:
    """The width asked for, or that of the platform."""
    if isinstance(experiment.machine.width, int):
        return experiment.machine.width
    return WIDTHS.get(jax.default_backend())


def make_setting(experiment: Experiment, task: Task, shape: Shape) -> Setting:
    """Method, local training, selection and width; numbers may be traced (sweep)."""
    local = make_local(experiment)
    factory = algorithms.method(experiment.method.algorithm)
    options = dict(experiment.method.hyper)
    options |= registry.given(factory, rounds=experiment.participation.rounds)
    return Setting(
        algorithm=factory(task, local, **options),
        local=local,
        selection=make_selection(experiment, shape),
        width=width_of(experiment),
        mesh=make_mesh(experiment),
        channel=channel.make(experiment.participation.channel),
    )


def make_selection(experiment: Experiment, shape: Shape) -> selection.Selection:
    """Who takes part in a round, and how much of its work each client does."""
    participation = experiment.participation
    cohort = participation.cohort
    if shape.sizes is None:
        drawn = selection.uniform(cohort, shape.num_clients)
    else:
        drawn = selection.by_size(cohort, np.asarray(shape.sizes))
    if not participation.stragglers:
        return drawn
    return selection.stragglers(
        drawn,
        participation.stragglers,
        experiment.training.epochs,
        participation.drop_stragglers,
    )


def make_mesh(experiment: Experiment) -> mesh.Grid | None:
    """The devices that share the cohort; None for one."""
    count = experiment.machine.devices
    # A mesh of one device would compile another program, for nothing.
    if count is None or count == 1:
        return None
    return mesh.make(count, experiment.machine.homes)


def make_local(experiment: Experiment) -> Local:
    """How clients train in this experiment; its learning rate decays by round."""
    rate = experiment.training.lr
    decay = experiment.training.lr_decay

    def schedule(round_: Any) -> Any:
        return rate * decay ** (round_ + 1)

    return Local(
        learning_rate=rate if _is(decay, 1) else schedule,
        batch_size=experiment.training.batch_size,
        epochs=experiment.training.epochs,
        steps=experiment.training.steps,
        optimizer=make_optimizer(experiment),
    )


def _is(value: Any, number: float) -> bool:
    """Whether it is this number for certain; a traced one may be any."""
    return not isinstance(value, jax.Array) and value == number


def make_optimizer(experiment: Experiment) -> Callable[[Any], Any]:
    """The optimizer as a function of the learning rate, tried on a single number."""
    choice = experiment.training.optimizer
    if choice.name == "sgd":
        if choice.args:
            raise ValueError("sgd takes its options from momentum and weight_decay")
        return _make_sgd(experiment.training)
    constructor: Any = getattr(optax, choice.name, None)
    if not callable(constructor):
        raise ValueError(
            f"unknown optimizer {choice.name!r}; known: sgd, and those of optax by "
            "name, such as adam"
        )
    build: Any = functools.partial(constructor, **choice.kwargs)

    def step(w: Any) -> Any:
        optimizer = build(0.1)
        return optimizer.update(w, optimizer.init(w), w)

    # optax has no list of its optimizers; losses and schedules are callable, too. Only
    # a step tells, and shapes are enough for it.
    try:
        jax.eval_shape(step, jax.ShapeDtypeStruct((), np.float32))
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"optimizer {str(choice)!r} cannot be built ({error}); "
            "expected an optimizer of optax with its options, such as adam:b1=0.9"
        ) from None
    return build


def _make_sgd(training: Training) -> Callable[[Any], Any]:
    """SGD without the parts that are off for certain: they would cost state and time.

    A traced number keeps its part, even where it is 0 in some points of a sweep.
    """
    momentum = None if _is(training.momentum, 0) else training.momentum
    weight_decay = None if _is(training.weight_decay, 0) else training.weight_decay
    return sgd(momentum, weight_decay)
