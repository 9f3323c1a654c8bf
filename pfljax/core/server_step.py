"""Servers that step their model by an optimizer instead of taking the mean.

The mean of the uploads gives a direction. The optimizer steps along it, and keeps its
moments from round to round (Reddi et al., ICLR 2021, https://arxiv.org/abs/2003.00295).
SGD of rate 1 takes the mean itself:

    server = stepped(optimizer, server, tree.sub(server.w, mean))   # w is the mean now

Running statistics take the mean of the uploads for every optimizer.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from pfljax.core import (
    aggregation,
    components,
    factories,
    optimizers,
    ranges,
    requirements,
    statistics,
    tree,
)
from pfljax.core.adaptive_server import SERVER_OPTIMIZERS
from pfljax.core.components import Component
from pfljax.core.optimizers import RATE, learning_rate
from pfljax.core.server_model import wrap_server
from pfljax.core.types import Algorithm, Cohort, Key, Local, Params

KIND = "server optimizer"


class Optimized(NamedTuple):
    """A model, and the state of its optimizer."""

    w: Params
    moments: Any


def by_name(text: str, rate: Any = None) -> optax.GradientTransformation:
    """The server's optimizer by its name, such as "sgd:momentum=0.9" or "fedadam".

    It is one of optax or of `core.adaptive_server`. `rate` is its learning rate unless
    it sets `learning_rate` itself.

    Raises:
      ValueError: the optimizer or one of its options is unknown or out of range, or an
        optimizer of optax has no rate.
    """
    choice = components.parse(text)
    if choice.name in SERVER_OPTIMIZERS or components.is_own(choice.name):
        return statistics.beside(_adaptive(choice, rate))
    _check_of_optax(choice)
    options = choice.options
    rate = options.pop(RATE, rate)
    if rate is None:
        raise ValueError(
            f"server_optimizer {str(choice)!r} needs the parameter 'learning_rate', "
            f"such as {choice.name}:learning_rate=0.01"
        )
    require_rate(rate)
    choice = components.Component(choice.name, options)
    optimizers.check_of_optax(choice, KIND)
    build = optimizers.from_optax(choice)
    return statistics.beside(build(rate))


def _check_of_optax(choice: Component) -> None:
    """Refuses unknown names of the optimizer and of its options."""
    known = optimizers.known_of_optax()
    function = requirements.find(KIND, {**known, **SERVER_OPTIMIZERS}, choice.name)
    options = [RATE, *optimizers.options_of_optax(function)]
    factories.check_names(f"{KIND} {choice.name!r}", options, choice.options)


def require_rate(rate: Any) -> None:
    """Raises a ValueError for an invalid rate; traced rates are not checked."""
    if isinstance(rate, jax.Array):
        return
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
    name = "server_optimizer: learning_rate"
    requirements.require(name, rate, is_number, "a number")
    limits = ranges.POSITIVE
    requirements.require(name, rate, limits.takes(rate), limits.expected)


def _adaptive(choice: Component, rate: Any) -> optax.GradientTransformation:
    """One of `core.adaptive_server` or one's own, at its own rate or else at `rate`."""
    if rate is not None and RATE not in choice.options:
        choice = choice.with_options({RATE: rate})
    kind = optax.GradientTransformation
    return factories.build(KIND, SERVER_OPTIMIZERS, choice, returns=kind)


def from_local(local: Local, round_: Any) -> optax.GradientTransformation:
    """The optimizer of local training, for servers whose clients send gradients."""
    return statistics.beside(local.optimizer(learning_rate(local, round_)))


def first(optimizer: optax.GradientTransformation, w: Params) -> Optimized:
    """The model before any step."""
    return Optimized(w=w, moments=optimizer.init(w))


def step(
    optimizer: optax.GradientTransformation,
    server: Optimized,
    slope: Params,
) -> Optimized:
    """The model after the optimizer's step against `slope`, a gradient."""
    updates, moments = optimizer.update(slope, server.moments, server.w)
    return Optimized(w=optax.apply_updates(server.w, updates), moments=moments)


def optimize(
    algorithm: Algorithm, optimizer: optax.GradientTransformation
) -> Algorithm:
    """The method, whose server steps towards the aggregate by the optimizer.

    Its server state is one model, or a part of one. With SGD of rate 1 the method is
    unchanged.
    """

    def aggregate(server: Optimized, uploads: Any, cohort: Cohort) -> Optimized:
        # The optimizer steps against a gradient: w - mean steps towards the mean.
        mean = algorithm.aggregate(server.w, uploads, cohort)
        return step(optimizer, server, tree.sub(server.w, mean))

    def init(params: Params, num_clients: int, key: Key) -> Optimized:
        return first(optimizer, algorithm.init(params, num_clients, key))

    wrapped = wrap_server(algorithm, lambda server: server.w)
    return wrapped._replace(init=init, aggregate=aggregate)


def along_mean(local: Local) -> Callable[[Optimized, Any, Cohort], Optimized]:
    """An `aggregate` of gradients: a step against their mean, by `from_local`."""

    def aggregate(server: Optimized, uploads: Any, cohort: Cohort) -> Optimized:
        mean = aggregation.mean(uploads, aggregation.uniform(cohort))
        return step(from_local(local, cohort.round), server, mean)

    return aggregate
