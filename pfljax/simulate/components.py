"""The parts of a run, from its settings: task, local training, cohorts, setting."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import linen as nn

from pfljax import algorithms, models, registry, selection
from pfljax.core.optimizers import sgd
from pfljax.core.types import Local, Task
from pfljax.data import Federation
from pfljax.engine import Setting, mesh
from pfljax.registry import Choice
from pfljax.runs.settings import Experiment

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
    by_size = experiment.participation.selection.name == "by_size"
    return Shape(
        federation.num_clients,
        federation.train.examples.x.shape[1:],
        federation.num_classes,
        _hashable(federation.shift),
        _hashable(federation.scale),
        tuple(np.asarray(federation.train.size).tolist()) if by_size else None,
    )


def _hashable(value: Any) -> Any:
    """A number, or the nested tuples of an array."""
    value = np.asarray(value).tolist() if not isinstance(value, list) else value
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


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
    given = registry.given(factory, rounds=experiment.participation.rounds)
    algorithm = factory(task, local, **dict(experiment.method.hyper), **given)
    if shape.sizes is None:
        chosen = selection.uniform(experiment.participation.cohort, shape.num_clients)
    else:
        chosen = selection.by_size(
            experiment.participation.cohort, np.asarray(shape.sizes)
        )
    if experiment.participation.stragglers:
        share, drop = (
            experiment.participation.stragglers,
            experiment.participation.drop_stragglers,
        )
        chosen = selection.stragglers(chosen, share, experiment.training.epochs, drop)
    width = width_of(experiment)
    several = experiment.machine.devices and experiment.machine.devices > 1
    return Setting(
        algorithm,
        local,
        chosen,
        width,
        mesh.make(experiment.machine.devices, experiment.machine.homes)
        if several
        else None,
    )


def make_local(experiment: Experiment) -> Local:
    """How clients train in this experiment; its learning rate decays by round."""
    rate, decay = experiment.training.lr, experiment.training.lr_decay

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
        numbers = experiment.training.momentum, experiment.training.weight_decay
        return sgd(*(None if _is(value, 0) else value for value in numbers))
    found: Any = getattr(optax, choice.name, None)
    if not callable(found):
        raise ValueError(
            f"unknown optimizer {choice.name!r}; known: sgd, and those of optax by "
            "name, such as adam"
        )
    built: Any = functools.partial(found, **choice.kwargs)

    def step(w: Any) -> Any:
        optimizer = built(0.1)
        return optimizer.update(w, optimizer.init(w), w)

    try:
        jax.eval_shape(step, jax.ShapeDtypeStruct((), np.float32))
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"optimizer {str(choice)!r} cannot be built ({error}); "
            "expected an optimizer of optax with its options, such as adam:b1=0.9"
        ) from None
    return built
