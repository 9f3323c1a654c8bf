"""FedPAC: features are aligned by class, and each client's head is a mix of all heads.

Xu, Tong and Huang, ICLR 2023, https://arxiv.org/abs/2306.11867 (Algorithm 1).

    Server   b, the body; prototypes c_j; the mixed head of each client; a mean head
    Client   nothing
    Message  b, c_j and the client's h_k
    Upload   b_k and h_k, trained; c_kj and n_kj; V_k and H_k

Let n_kj of the n_k examples of client k be of class j, and p_kj = n_kj / n_k. By the
received body, with means over the client's examples, it computes

    H_k[j] = p_kj mean_{y = j} z,    V_k = (mean ||z||^2 - ||H_k||^2) / n_k.

It trains the head with b fixed, and then b with the head fixed, on
CE + lam MSE(z, c_y); classes without a c_j are not pulled. c_kj are the mean features
by class of the trained body. The server takes b <- sum_k n_k b_k / sum_k n_k and
c_j <- sum_k n_kj c_kj / sum_k n_kj. For each participant k it solves

    min  sum_j a_j^2 V_j + ||H_k - sum_j a_j H_j||^2,    a_j >= 0,  sum_j a_j = 1

over the cohort, and h_k <- sum_j a_j h_j. Weights below 0.001 are left out. Client k is
evaluated with b and its mixed head, and before it first takes part with the mean of the
heads of the last cohort.

In FL-bench the head trains in the first of the local epochs, so that with one epoch the
body is never trained; PFLlib averages prototypes without weights. All published codes
cut eigenvalues of the quadratic program, which is never needed in the form above.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.algorithms import _prototypes as prototypes
from pfljax.algorithms._prototypes import Prototypes
from pfljax.algorithms.decoupling._heads import mix_heads, moments
from pfljax.algorithms.decoupling.partial import private_training
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, leaves, tree
from pfljax.core.factories import component
from pfljax.core.losses import mean, pull_features
from pfljax.core.ranges import Epochs, NotNegative
from pfljax.core.training import (
    fit_objective,
    steps_in_epochs,
    with_epochs,
)
from pfljax.core.types import Algorithm, Local, Task


class Server(NamedTuple):
    """The state of the server."""

    b: Any
    h: Any  # the mean head of the last cohort
    heads: Any  # the mixed heads, leaves [C, ...]
    prototypes: Prototypes


class Message(NamedTuple):
    """What a client receives."""

    b: Any
    h: Any
    prototypes: Prototypes


class Upload(NamedTuple):
    """What a client sends."""

    b: Any
    h: Any
    prototypes: Prototypes
    means: Any  # f32[K, e], H
    variance: Any  # f32[], V


@component
def fedpac(
    task: Task,
    local: Local,
    *,
    lam: NotNegative = 1.0,
    head_epochs: Epochs = 1,
    head_lr: NotNegative | None = None,
) -> Algorithm:
    """Builds FedPAC.

    Args:
      lam: weight of the distance to prototypes; 0 leaves it out.
      head_epochs: epochs of the head; None for those of local training.
      head_lr: rate of the head; None for that of local training.
    """
    in_head = leaves.of_kind(task, "head")
    rate = local.learning_rate if head_lr is None else head_lr
    train_head = private_training(task, local._replace(learning_rate=rate), in_head)

    def train(turn, message, client, data):
        w = tree.merge(message.h, message.b)
        means, variance = moments(task, w, data, local.batch_size)
        w = train_head(with_epochs(turn, local, head_epochs), w, data)
        h, b = tree.split(w, in_head)

        def pull(z, batch):
            gap = (z.reshape(len(z), -1) - message.prototypes.mean[batch.y]) ** 2
            known = message.prototypes.count[batch.y] > 0
            return lam * mean(jnp.where(known, gap.mean(1), 0), batch)

        pulled = pull_features(task, pull)

        def objective(b, batch, key):
            return pulled(tree.merge(h, b), batch, key)

        b, metrics = fit_objective(objective, b, data, turn, local)
        own = prototypes.from_client(task, tree.merge(h, b), data, local.batch_size)
        return client, Upload(b, h, own, means, variance), metrics

    def init(params, num_clients, key):
        h, b = tree.split(params, in_head)
        heads = tree.stack_copies(h, num_clients)
        return Server(b, h, heads, prototypes.none(task))

    def personal(turn, server, client, data):
        return tree.merge(tree.take_or(server.heads, turn.id), server.b)

    return fedavg(task, local)._replace(
        init=init,
        message=lambda turn, server, client: Message(
            server.b, tree.take_or(server.heads, turn.id), server.prototypes
        ),
        train=train,
        aggregate=aggregate,
        server_model=lambda server: tree.merge(server.h, server.b),
        personal=personal,
        newcomer=lambda turn, server, data: tree.merge(server.h, server.b),
        work=lambda steps, size, is_first: (
            steps + steps_in_epochs(steps, local, head_epochs)
        ),
        origin=origin,
        uploads_by_client=True,
        classes=True,
        parts=("body", "head"),
    )


def origin(message, client, upload):
    """The received model; statistics are made anew."""
    zero = jnp.zeros_like
    own = prototypes.no_origin(message, client, upload.prototypes)
    return Upload(message.b, message.h, own, zero(upload.means), zero(upload.variance))


def aggregate(server, uploads, cohort):
    """The server after a cohort, whose heads are mixed for each of its clients."""
    uploads, cohort = aggregation.gather(uploads, cohort)
    weight = aggregation.by_examples(cohort)
    mixed = mix_heads(uploads.h, uploads.means, uploads.variance, weight > 0)
    b, h = aggregation.mean((uploads.b, uploads.h), weight)
    return Server(
        b,
        h,
        aggregation.record(server.heads, mixed, cohort),
        prototypes.renew(server.prototypes, uploads.prototypes, cohort),
    )
