"""FedCurv. Shoham et al., 2019, https://arxiv.org/abs/1910.07796.

    Server   w, and the sums of I_j and of I_j w_j over who took part last
    Client   I_k and I_k w_k, as it last sent them, and in which round
    Message  w, both sums and their round    Upload  w_k, I_k and I_k w_k
I_k is the diagonal of the Fisher matrix of client k at w_k, after its training. From w,
client k also minimises
F_k(v) + lam sum_{j != k} (v - w_j)' I_j (v - w_j),
over the others of the last round that anybody reported in. Up to a constant, the
penalty is lam <v^2, U> - 2 lam <v, V>: U and V are the sums without what is the
client's own, which it takes off itself. Server: w <- sum_k n_k w_k / sum_k n_k.
Everybody is judged by w.

The penalty that is reported lacks the constant, so it may be negative. Nothing pulls in
the first round.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.multi_task import _fisher as fisher
from pfljax.core import aggregation, tree
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import NotNegative, component


class Curvature(NamedTuple):
    """The Fisher diagonal I and I w, of one client or summed."""

    diagonal: Params
    product: Params


class Server(NamedTuple):
    """The model and what its last trainers said; this is the message, too."""

    w: Params
    sums: Curvature
    round: Any  # i32[], in which the sums were taken; -1 before the first


class Client(NamedTuple):
    """What a client knows of its own part in the sums."""

    own: Curvature
    round: Any  # i32[], in which it was sent; -1 for never


class Upload(NamedTuple):
    """Trained parameters and their curvature."""

    w: Params
    own: Curvature


@component
def fedcurv(
    task: Task,
    local: Local,
    *,
    lam: NotNegative = 1.0,
    diagonal: Literal["rows", "batches"] = "rows",
) -> Algorithm:
    """Builds FedCurv; `lam` = 0, or one client alone, is FedAvg.

    `diagonal` says whose gradients are squared: those of rows, or of batches.

    Args:
      lam: weight of the other clients' penalties; 0 is FedAvg.
      diagonal: whose gradients are squared: "rows" or "batches".
    """
    squares = fisher.KINDS[diagonal]

    def train(turn, message, client, data):
        others = without_own(message, client)

        def penalty(v):
            square = jax.tree.map(jnp.square, v)
            products = 2 * tree.dot(v, others.product)
            return lam * (tree.dot(square, others.diagonal) - products)

        w, metrics = fit(task.loss, message.w, data, turn, local, penalty=penalty)
        own = fisher.diagonal(task.loss, w, data, local.batch_size, squares)
        sent = Curvature(diagonal=own, product=tree.multiply(own, w))
        return Client(own=sent, round=turn.round), Upload(w=w, own=sent), metrics

    return fedavg(task, local)._replace(
        init=lambda params, num_clients, key: Server(params, *nothing(params)),
        init_client=lambda params, client_id, key: Client(*nothing(params)),
        message=lambda turn, server, client: server,
        train=train,
        aggregate=aggregate,
        server_model=lambda server: server.w,
        # Curvature is no change of anything.
        origin=lambda message, client, upload: Upload(
            message.w, tree.zeros(client.own)
        ),
    )


def nothing(params):
    """No curvature, of no round."""
    return Curvature(tree.zeros(params), tree.zeros(params)), jnp.int32(-1)


def without_own(message, client):
    """The sums over the others: less what this client added, if it did."""
    took_part = client.round == message.round
    others = tree.sub(message.sums, client.own)
    others = tree.where(took_part, others, message.sums)

    # Rounding, or the noise of a channel, must not make it a push.
    def positive(leaf):
        return jnp.maximum(leaf, 0)

    return others._replace(diagonal=jax.tree.map(positive, others.diagonal))


def aggregate(server, uploads, cohort):
    """The mean model, and the sums over those who reported."""
    return Server(
        w=aggregation.mean(uploads.w, aggregation.by_examples(cohort)),
        # Once a client, however often it was drawn: it takes off one.
        sums=aggregation.weighted_sum(uploads.own, cohort.mask),
        round=cohort.round,
    )
