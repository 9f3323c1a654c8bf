"""A server that steps its model by an optimizer, where others take the mean.

The mean of what clients upload is a direction; the optimizer goes along it, and keeps
its moments from round to round (Reddi et al., ICLR 2021,
https://arxiv.org/abs/2003.00295). SGD of rate 1 goes all the way:

    server = stepped(optimizer, server, tree.sub(server.w, mean))   # w is the mean now

Running statistics take the mean of the uploads, whatever the optimizer.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import optax

from pfljax import registry
from pfljax.core import aggregation, optimizers, statistics
from pfljax.core.training import learning_rate
from pfljax.core.types import Cohort, Local, Params


class Optimized(NamedTuple):
    """A model and what its optimizer remembers."""

    w: Params
    moments: Any


def by_name(text: str, rate: Any) -> optax.GradientTransformation:
    """The server's optimizer, as "sgd:momentum=0.9" or "adam" in optax, at this rate.

    Raises:
      ValueError: the optimizer or an option of it is unknown, or out of its range.
    """
    choice = registry.parse(text)
    optimizers.check_of_optax(choice)
    build = optimizers.of_optax(choice)
    return statistics.beside(build(rate))


def of_local(local: Local, round_: Any) -> optax.GradientTransformation:
    """The optimizer of local training, for a server whose clients send gradients."""
    return statistics.beside(local.optimizer(learning_rate(local, round_)))


def first(optimizer: optax.GradientTransformation, w: Params) -> Optimized:
    """The model before any step."""
    return Optimized(w=w, moments=optimizer.init(w))


def stepped(
    optimizer: optax.GradientTransformation,
    server: Optimized,
    slope: Params,
) -> Optimized:
    """The model after the optimizer's step against `slope`, a gradient."""
    updates, moments = optimizer.update(slope, server.moments, server.w)
    return Optimized(w=optax.apply_updates(server.w, updates), moments=moments)


def along_mean(local: Local) -> Callable[[Optimized, Any, Cohort], Optimized]:
    """An `aggregate` of gradients: a step against their uniform mean, by `of_local`."""

    def aggregate(server: Optimized, uploads: Any, cohort: Cohort) -> Optimized:
        mean = aggregation.mean(uploads, aggregation.reported(cohort))
        return stepped(of_local(local, cohort.round), server, mean)

    return aggregate
