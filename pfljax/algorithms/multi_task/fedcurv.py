"""FedCurv: clients stay near each other where the Fisher information is large.

Shoham et al., 2019, https://arxiv.org/abs/1910.07796.

    Server   w, and the sums of I_j and of I_j w_j over the last participants
    Client   I_k and I_k w_k, as last sent, and the round in which they were sent
    Message  w, both sums and their round    Upload  w_k, I_k and I_k w_k

I_k is the diagonal of the Fisher matrix of client k at w_k, after its training. From w,
client k minimises
F_k(v) + lam sum_{j != k} (v - w_j)' I_j (v - w_j),
where j runs over the other participants of the last round in which any client reported.
Up to a constant, the penalty is lam <v^2, U> - 2 lam <v, V>, where U and V are the sums
without the client's own terms, which it subtracts itself. The server takes
w <- sum_k n_k w_k / sum_k n_k. Every client is evaluated with w.

The metric "penalty" lacks the constant, so it may be negative. There is no penalty in
the first round.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms import _fisher as fisher
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.minibatches import steps_per_epoch
from pfljax.core.ranges import NotNegative
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task


class Curvature(NamedTuple):
    """The Fisher diagonal I and I w, of one client or summed over clients."""

    diagonal: Params
    product: Params


class Server(NamedTuple):
    """The model, and the sums of its last participants; this is also the message."""

    w: Params
    sums: Curvature
    round: Any  # i32[], the round of the sums; -1 before the first


class Client(NamedTuple):
    """The client's own terms of the sums."""

    curvature: Curvature
    round: Any  # i32[], the round in which they were sent; -1 for never


class Upload(NamedTuple):
    """Trained parameters and their curvature."""

    w: Params
    curvature: Curvature


@component
def fedcurv(
    task: Task,
    local: Local,
    *,
    lam: NotNegative = 1.0,
    diagonal: Literal["examples", "batches"] = "examples",
) -> Algorithm:
    """Builds FedCurv; `lam` = 0, or a single client, is FedAvg.

    Args:
      lam: weight of the penalties for the other clients; 0 is FedAvg.
      diagonal: whose gradients are squared: those of "examples" or of "batches".
    """
    squares = fisher.KINDS[diagonal]

    def train(turn, message, client, data):
        others = without_own(message, client)

        def penalty(v):
            square = jax.tree.map(jnp.square, v)
            products = 2 * tree.dot(v, others.product)
            return lam * (tree.dot(square, others.diagonal) - products)

        w, metrics = fit(task.loss, message.w, data, turn, local, penalty=penalty)
        diagonal = fisher.diagonal(task.loss, w, data, local.batch_size, squares)
        sent = Curvature(diagonal=diagonal, product=tree.multiply(diagonal, w))
        client = Client(curvature=sent, round=turn.round)
        return client, Upload(w=w, curvature=sent), metrics

    return fedavg(task, local)._replace(
        init=lambda params, num_clients, key: Server(params, *nothing(params)),
        init_client=lambda params, client_id, key: Client(*nothing(params)),
        train=train,
        work=lambda steps, size, is_first: steps + steps_per_epoch(local, size),
        aggregate=aggregate,
        server_model=lambda server: server.w,
        uploads_by_client=True,
        # Curvature is made anew: it is no change.
        origin=lambda message, k, upload: Upload(message.w, tree.zeros(k.curvature)),
    )


def nothing(params):
    """The curvature, and its round, before any was sent."""
    return Curvature(tree.zeros(params), tree.zeros(params)), jnp.int32(-1)


def without_own(message, client):
    """The sums over the other clients: without the terms that this one has added."""
    took_part = client.round == message.round
    others = tree.sub(message.sums, client.curvature)
    others = tree.where(took_part, others, message.sums)
    # Rounding, or the noise of a channel, must not turn the pull into a push.
    return others._replace(diagonal=jax.tree.map(jax.nn.relu, others.diagonal))


def aggregate(server, uploads, cohort):
    """The mean model, and the sums over the clients that reported."""
    w = aggregation.mean(uploads.w, aggregation.by_examples(cohort))
    # Once for each client, however often it was drawn: it subtracts its terms once.
    sums = aggregation.weighted_sum(uploads.curvature, cohort.mask)
    return Server(w=w, sums=sums, round=cohort.round)
