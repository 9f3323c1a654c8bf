"""FedAMP: the server mixes a model for each client, mostly from similar clients.

Huang et al., AAAI 2021, https://arxiv.org/abs/2007.03797 (Algorithm 1).

    Server   w_k of every client k, as last sent, and which clients have sent
    Client   w_k, the parameters of this client
    Message  u_k               Upload  w_k

With A(x) = 1 - exp(-x / sigma), the server mixes a model for each client:
u_k = sum_j xi_kj w_j,  xi_kj = alpha A'(||w_k - w_j||^2),  xi_kk = 1 - sum_{j != k}.
From u_k, client k minimises  F_k(v) + lam / (2 alpha) ||v - u_k||^2.  The result is its
new w_k, with which it is evaluated.

Differs from the paper, where all clients train in every round: here j runs over the
clients that have ever sent a model, with the last one that they sent. A client that
never has is sent the mean of these models and is evaluated with it. alpha should be
small enough for xi_kk >= 0; otherwise the weights of the others are divided by their
sum.
"""

from typing import Literal

import jax.numpy as jnp

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.losses import proximal
from pfljax.core.ranges import NotNegative, Positive
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task

Start = Literal["cloud", "own"]


@component
def fedamp(
    task: Task,
    local: Local,
    *,
    alpha: Positive = 1.0,
    sigma: Positive = 1.0,
    lam: NotNegative = 1.0,
    relative: bool = False,
    start: Start = "cloud",
) -> Algorithm:
    """Builds FedAMP; with `lam` = 0 a small `alpha` is local training.

    Args:
      task: the model.
      local: how a client trains.
      alpha: step towards the others; the pull `lam` is divided by it.
      sigma: squared distances well above it count as infinite.
      lam: weight of the pull to u_k.
      relative: whether `sigma` is a multiple of the median of a client's squared
        distances, which grow with the model.
      start: where local training starts, at u_k ("cloud") or at w_k ("own").
    """

    def attention(models, own, others, centre):
        square = affinity.square_distances(models, own, centre)
        width = sigma * median(square, others) if relative else sigma
        return attract(square, others, alpha, width)

    return attending(task, local, attention, lam / alpha, start)


def attending(task, local, attention, pull, start):
    """A method whose server mixes models for each client by its `attention`.

    This is a function (models, the client's own model, others f32[C], their mean) ->
    weights f32[C] of the others, whose sum is at most 1.
    """

    def init(params, num_clients, key):
        return affinity.first_models(params, num_clients)

    def message(turn, server, w):
        centre = affinity.mean(server)
        model = tree.take_or(server.params, turn.id)
        others = affinity.others(server, turn.id)
        xi = attention(server.params, model, others, centre)
        xi = xi.at[turn.id].set(1 - jnp.sum(xi), mode="drop")
        u = aggregation.mean(server.params, xi)
        return tree.where(affinity.has_sent(server, turn.id), u, centre)

    def train(turn, u, w, data):
        first = u if start == "cloud" else w
        near = proximal(u, pull)
        w, metrics = fit(task.loss, first, data, turn, local, penalty=near)
        return w, w, metrics

    return alone(task, local)._replace(
        init=init,
        message=message,
        train=train,
        aggregate=affinity.receive,
        newcomer=lambda turn, server, data: affinity.mean(server),
        origin=lambda u, w, upload: u if start == "cloud" else w,
        uploads_by_client=True,
    )


def attract(square, others, alpha, width):
    """alpha A'(x) of the squared distances x to others, f32[C]; their sum at most 1."""
    # A width of 0, where all models are equal, would be 0 / 0.
    width = jnp.maximum(width, jnp.finfo(jnp.float32).tiny)
    nearness = others * jnp.exp(-square / width)
    total = jnp.maximum(jnp.sum(nearness), jnp.finfo(jnp.float32).tiny)
    return nearness * jnp.minimum(alpha / width, 1 / total)


def median(square, others):
    """The median of the squared distances to others, f32[]; 0 without any."""
    known = jnp.where(others > 0, square, jnp.nan)
    return jnp.nan_to_num(jnp.nanmedian(known))
