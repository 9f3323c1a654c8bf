"""ARUBA: the server learns a start and a learning rate for every parameter.

Khodak, Balcan, Talwalkar, NeurIPS 2019, https://arxiv.org/abs/1906.02717 (Algorithm 1).

    Server   phi; b and g, which give the rates   Client  nothing
    Message  phi, eta         Upload  theta_k, and G_k, its sum of squared gradients

By coordinate: a client takes steps  theta <- theta - eta grad f(theta)  from phi, with
eta = sqrt(b / g). Let eps = zeta rate. Then b starts at eps^2 and g at zeta^2, and
round t, counted from 0, updates
b <- b + sum_k (theta_k - phi)^2 / 2 + eps^2 / (t + 1)^power  and
g <- g + sum_k G_k + zeta^2 / (t + 1)^power.  phi is the uniform mean of the theta_k.
Every client is evaluated with phi, or after `finetune` local steps with eta from phi.

With `isotropic` there is one rate for all parameters, from the sums of b and g over
coordinates. The paper's tasks come one after another; here the tasks of a round add up,
and t counts rounds, from 0 instead of 1. eta replaces the rate of plain SGD, and a
decay of the learning rate lowers it as well.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.factories import component
from pfljax.core.keys import fold
from pfljax.core.optimizers import beside, learning_rate, whole_step
from pfljax.core.ranges import Count, Deviation, NotNegative
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task


class Server(NamedTuple):
    """The start of the clients, and the sums that give their rates."""

    phi: Params
    b: Any  # shaped as phi, or f32[]
    g: Any  # shaped as phi, or f32[]


class Message(NamedTuple):
    """The start of a client, and its rates."""

    phi: Params
    eta: Any  # shaped as phi, or f32[]


class Upload(NamedTuple):
    """Trained parameters, and the sum of their squared gradients."""

    theta: Params
    squares: Any  # shaped as phi, or f32[]


@component
def aruba(
    task: Task,
    local: Local,
    *,
    zeta: Deviation = 1.0,
    power: NotNegative = 1.0,
    isotropic: bool = False,
    finetune: Count = 0,
) -> Algorithm:
    """Builds ARUBA; with `zeta` -> infinity it is FedAvg with uniform weights.

    Args:
      zeta: scale of the first sums of gradients; a large one is FedAvg.
      power: exponent of the decay of zeta over the rounds.
      isotropic: use one rate for all parameters.
      finetune: local steps before the evaluation; 0 for none.
    """
    square = tree.square_norm if isotropic else by_coordinate
    first_rate = learning_rate(local, jnp.int32(0))
    adapt = adapting(task, local, square, first_rate)

    def priors(params):
        starts = tree.full(params, zeta * first_rate), tree.full(params, zeta)
        return tuple(map(square, starts))

    def init(params, num_clients, key):
        return Server(params, *priors(params))

    def message(turn, server, client):
        return Message(phi=server.phi, eta=rates(server, zeta))

    def train(turn, message, client, data):
        pair, metrics = adapt(turn, message, data)
        return client, Upload(*pair), metrics

    def aggregate(server, uploads, cohort):
        smoothing = tree.scale(priors(server.phi), (cohort.round + 1.0) ** -power)
        return grown(server, uploads, cohort, square, smoothing)

    def personal(turn, server, client, data):
        turn = fold(turn, "finetune", finetune)
        (theta, _), _ = adapt(turn, message(turn, server, client), data)
        return theta

    return fedavg(task, local)._replace(
        init=init,
        message=message,
        train=train,
        aggregate=aggregate,
        server_model=lambda server: server.phi,
        personal=personal if finetune else None,
        adaptation_steps=finetune,
        uploads_by_client=True,
        origin=at_start,
    )


def at_start(message, client, upload):
    """The upload of a client that takes no step."""
    return Upload(theta=message.phi, squares=tree.zeros(upload.squares))


def grown(server, uploads, cohort, square, smoothing):
    """The server after a round: the mean, and b and g with the clients' terms.

    The task of a client that is drawn twice is trained once, and adds one term.
    """
    phi = aggregation.mean(uploads.theta, aggregation.uniform(cohort))
    moves = jax.vmap(lambda theta: square(tree.sub(theta, server.phi)))
    terms = moves(uploads.theta), uploads.squares
    moved, squares = aggregation.mean(terms, cohort.mask)
    count = cohort.mask.sum()
    added = tree.scale(moved, count / 2), tree.scale(squares, count)
    b, g = tree.add(tree.add((server.b, server.g), smoothing), added)
    return Server(phi=phi, b=b, g=g)


def adapting(task, local, square, first_rate):
    """(turn, message, data) -> ((theta, its sum of squared gradients), metrics)."""
    slope_of = jax.value_and_grad(task.loss)
    # The sum takes its whole change: it starts at 0 and only grows.
    stepped = beside(local, ("model", "other"), whole_step)

    def adapt(turn, message, data):
        # The optimizer multiplies by the rate; at rate 0 eta is 0 as well.
        factor = tree.scale(message.eta, 1 / jnp.maximum(first_rate, 1e-30))

        def gradient(pair, batch, key):
            value, slope = slope_of(pair[0], batch, key)
            growth = tree.scale(square(slope), -1.0)
            return value, (times(factor, slope), growth)

        start = message.phi, square(tree.zeros(message.phi))
        return fit(task.loss, start, data, turn, stepped, gradient)

    return adapt


def by_coordinate(params):
    """The square of every coordinate."""
    return jax.tree.map(jnp.square, params)


def times(factor, slope):
    """The slope times a factor, or one for each coordinate; statistics as they are."""
    if isinstance(factor, jax.Array):
        return statistics.scale(slope, factor)
    # Running statistics step at the rate 1.
    factor = statistics.by_kind(factor, statistic=jnp.ones_like)
    return tree.multiply(factor, slope)


def rates(server, zeta):
    """eta, the root of b / g."""
    # The noise of a channel may have taken g below its start.
    return jax.tree.map(
        lambda b, g: jnp.sqrt(b / jnp.maximum(g, zeta**2)), server.b, server.g
    )
