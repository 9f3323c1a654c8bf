"""The learning rate of a round, and the optimizer of local training at that rate."""

from typing import Any

import optax

from pfljax.core import statistics
from pfljax.core.types import Array, Local, Turn


def optimizer_of(local: Local, turn: Turn) -> optax.GradientTransformation:
    """The optimizer of this round; running statistics step outside of it."""
    rate = _rate_of_round(local, turn.round)
    by_step = local.by_step
    if by_step is None:
        return statistics.beside(local.optimizer(rate))
    # Optimizers of optax count their steps where the rate is a function.
    return statistics.beside(local.optimizer(lambda step: rate * by_step(step)))


def learning_rate(local: Local, round_: Array) -> Any:
    """The one learning rate of this round (0 for the first), traced or not.

    Raises:
      ValueError: the rate changes from step to step within a round.
    """
    if local.by_step is not None:
        raise ValueError(
            "schedule is by=step, but this method computes with one learning rate for "
            "all steps of a round; choose by=round"
        )
    return _rate_of_round(local, round_)


def _rate_of_round(local: Local, round_: Array) -> Any:
    rate = local.learning_rate
    return rate(round_) if callable(rate) else rate
