"""AFL: the server minimises the largest mean loss over all mixtures of the clients.

Mohri, Sivek, Suresh, ICML 2019, https://arxiv.org/abs/1902.00146 (Stochastic-AFL).

    Server   w, lambda_k of every client k, and the mean of all w so far
    Client   nothing
    Message  w                Upload  w_k, and F_k(w)

The objective is  min_w max_lambda sum_k lambda_k F_k(w),  where lambda is a point of
the simplex, and each client is a domain of the paper. F_k(w) is the loss of the
received w on all examples of client k. With the participants S out of C clients, the
server takes

    w <- sum_k lambda_k w_k / sum_k lambda_k,   k in S
    lambda <- the nearest point of the simplex to lambda + weight_lr (C / |S|) F(w)

where F_k is 0 for absent clients. All lambda_k are 1 / C at first. Every client is
evaluated with the mean over the rounds of w, as in the paper, or with w.

Differs from the paper, where a round is one step of one gradient; with local steps it
is the AFL of q-FedAvg's authors. Their projection on the simplex has a slip in an
index: (1.15, 0.1) gives (1.025, 0), not (1, 0).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from optax.projections import projection_simplex

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.ranges import Count, NotNegative
from pfljax.core.server_model import wrap_server
from pfljax.core.training import fit, full_loss
from pfljax.core.types import Algorithm, Local, Params, Task


class Server(NamedTuple):
    """The model, the weights of all clients, and the mean model."""

    w: Params
    weights: Any  # f32[C], lambda
    mean: Params


class Upload(NamedTuple):
    """A client's model after training, and its loss before."""

    w: Params
    loss: Any


@component
def afl(
    task: Task,
    local: Local,
    *,
    weight_lr: NotNegative = 0.01,
    average: bool = True,
    finetune: Count = 0,
) -> Algorithm:
    """Builds AFL; the w of `weight_lr` = 0 is that of FedAvg with uniform weights.

    Args:
      weight_lr: rate of the ascent of the clients' weights; 0 keeps them equal.
      average: whether the mean over the rounds of w is evaluated, and not the last w.
      finetune: local steps before the evaluation; 0 for none.
    """

    def init(params, num_clients, key):
        return Server(
            params, jnp.full(num_clients, 1 / num_clients, jnp.float32), params
        )

    def train(turn, w, client, data):
        loss = full_loss(task.loss, w, data, local.batch_size)
        w_k, metrics = fit(task.loss, w, data, turn, local)
        return client, Upload(w=w_k, loss=loss), metrics

    def aggregate(server, uploads, cohort):
        own = tree.take_or(server.weights, cohort.ids)
        weight = own * aggregation.uniform(cohort)
        new = aggregation.mean(uploads.w, weight)
        # The clients that reported may all have the weight 0.
        w = tree.where(weight.sum() > 0, new, server.w)
        share = cohort.mask.sum() / cohort.num_clients
        raised = own + weight_lr * uploads.loss / jnp.maximum(share, 1e-12)
        weights = aggregation.record(server.weights, raised, cohort)
        mean = tree.lerp(server.mean, w, 1 / (cohort.round + 1))
        return Server(w, projection_simplex(weights), mean)

    shared = fedavg(task, local, finetune=finetune)
    evaluated = wrap_server(shared, lambda s: s.mean if average else s.w)
    return evaluated._replace(
        init=init,
        message=lambda turn, server, client: server.w,
        train=train,
        aggregate=aggregate,
        origin=lambda w, client, upload: Upload(w=w, loss=None),
        uploads_by_client=True,
    )
