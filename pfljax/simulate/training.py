"""Local training from the settings: rates, optimizer and augmentation."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core import kept_moments, optimizers, schedules
from pfljax.core.communication import trace_exchanges
from pfljax.core.types import Algorithm, Local, Task
from pfljax.models import augmentation
from pfljax.runs.settings import Experiment
from pfljax.simulate import methods
from pfljax.simulate.shape import Shape

MOST_STEPS = 1000  # of a local training, by which a schedule is checked


def change_task(
    experiment: Experiment, task: Task, input_shape: tuple[int, ...]
) -> Task:
    """The task as local training sees it, and so every task that belongs to it."""
    if not experiment.augment:
        return task
    augment = augmentation.make(experiment.augment, input_shape)

    def change(task: Task) -> Task:
        task = augmentation.augment(task, augment)
        resized = task.resized
        if resized is None:
            return task
        return task._replace(resized=lambda widths: change(resized(widths)))

    return change(task)._replace(
        proxy=task.proxy and change(task.proxy), peers=tuple(map(change, task.peers))
    )


def build(
    experiment: Experiment,
    task: Task,
    local: Local,
    options: Mapping[str, Any],
    shape: Shape,
) -> Algorithm:
    """The method of the experiment, whose clients may keep their optimizer's state.

    Raises:
      ValueError: the method does not fit the model or the settings.
    """

    def make(local: Local) -> Algorithm:
        return methods.build(experiment.algorithm.name, task, local, options)

    keep = experiment.keep_optimizer
    method = kept_moments.keep(make, local) if keep else make(local)
    # Tracing finds several optimizers, and a body and a head that are missing.
    if keep or not task.feature_shape:
        trace_exchanges(method, task, shape.num_clients, shape.input_shape)
    return method


def make_local(experiment: Experiment) -> Local:
    """The local training of the experiment; its rate may change by round."""
    schedule = schedules.make(experiment.schedule)
    _check_schedule(experiment, schedule)
    by_step = None
    if schedule is not None and schedule.by == "step":
        by_step = schedule.factor
        schedule = None
    return Local(
        learning_rate=_learning_rate(experiment, schedule),
        batch_size=experiment.batch_size,
        epochs=experiment.epochs,
        steps=experiment.steps,
        optimizer=make_optimizer(experiment),
        by_step=by_step,
    )


def _check_schedule(
    experiment: Experiment, schedule: schedules.Schedule | None
) -> None:
    """Refuses a schedule whose rates are 0 from the first to the last."""
    if schedule is None:
        return
    count, unit = experiment.rounds, "round"
    if schedule.by == "step":
        count, unit = MOST_STEPS, "local step"
    # In a sweep, which traces a run, the schedule is known as well.
    with jax.ensure_compile_time_eval():
        trains = bool(jax.vmap(schedule.factor)(jnp.arange(count)).any())
    if not trains:
        raise ValueError(
            f"schedule is {str(experiment.schedule)!r}, which is 0 in the first "
            f"{count} {unit}s, so that nothing would be trained; expected rates above 0"
        )


def _learning_rate(training: Experiment, schedule: schedules.Schedule | None) -> Any:
    """The rate, or a function of the round."""
    rate = training.lr
    decay = training.lr_decay

    def decay_rate(round_: Any) -> Any:
        return rate * decay ** (round_ + 1)

    decayed = None if _is(decay, 1) else decay_rate
    if schedule is None:
        return decayed or rate
    factor = schedule.factor

    def schedule_rate(round_: Any) -> Any:
        return factor(round_) * (decayed(round_) if decayed else rate)

    return schedule_rate


def _is(value: Any, number: float) -> bool:
    """Whether it equals the number for certain; a traced value may be any."""
    return not isinstance(value, jax.Array) and value == number


def make_optimizer(experiment: Experiment) -> Callable[[Any], Any]:
    """The optimizer as a function of the learning rate."""
    optimizer = _plain_optimizer(experiment)
    if experiment.max_grad_norm is not None:
        optimizer = optimizers.clip(optimizer, experiment.max_grad_norm)
    return optimizer


def _plain_optimizer(experiment: Experiment) -> Callable[[Any], Any]:
    if experiment.optimizer.name != "sgd":
        return optimizers.from_optax(experiment.optimizer)
    # Parts that are off would cost state and time. A part with a traced number stays,
    # even if it is 0 in some points of a sweep.
    momentum = None if _is(experiment.momentum, 0) else experiment.momentum
    weight_decay = experiment.weight_decay
    if _is(weight_decay, 0):
        weight_decay = None
    return optimizers.sgd(momentum, weight_decay)
