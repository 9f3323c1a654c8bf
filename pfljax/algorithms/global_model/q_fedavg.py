"""q-FedAvg: clients with a larger loss weigh more, so that losses become more equal.

Li, Sanjabi, Beirami, Smith, ICLR 2020, https://arxiv.org/abs/1905.10497 (Algorithm 2).

    Server   w                Client  nothing
    Message  w                Upload  D_k and h_k

The objective is  sum_k F_k(w)^(q + 1) / (q + 1). Let F_k be the loss of the received w
on all examples of client k, and d_k the change of its parameters in local training. It
sends, with L = 1 / learning rate for the Lipschitz constant of its gradient,

    D_k = L F_k^q d_k,   h_k = q F_k^(q - 1) ||L d_k||^2 + L F_k^q

and the server takes w <- w + sum_k D_k / sum_k h_k. Clients count alike. Every client
is evaluated with w. Running statistics change by their mean.

FedLab's code sums the losses of minibatches during training instead of F_k, and
Flower's takes one loss for all clients.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.factories import component
from pfljax.core.optimizers import learning_rate
from pfljax.core.ranges import Count, NotNegative
from pfljax.core.training import fit, full_loss
from pfljax.core.types import Algorithm, Local, Params, Task

LEAST = 1e-10  # added to a loss, as in the authors' code: q - 1 may be negative


class Upload(NamedTuple):
    """Terms of the sums of the server."""

    change: Params  # D_k
    h: Any  # f32[]


@component
def q_fedavg(
    task: Task, local: Local, *, q: NotNegative = 1.0, finetune: Count = 0
) -> Algorithm:
    """Builds q-FedAvg; `q` = 0 is FedAvg with uniform weights.

    It is meant for plain SGD, of which d_k / learning rate is a sum of gradients.

    Args:
      q: how much more clients with a large loss weigh; 0 is FedAvg.
      finetune: local steps before the evaluation; 0 for none.
    """

    def train(turn, w, client, data):
        loss = full_loss(task.loss, w, data, local.batch_size) + LEAST
        w_k, metrics = fit(task.loss, w, data, turn, local)
        d = tree.sub(w_k, w)
        rate = learning_rate(local, turn.round)
        # At the rate 0, d is 0 too.
        lipschitz = 1 / jnp.maximum(rate, jnp.finfo(jnp.float32).tiny)
        weight = lipschitz * loss**q
        slope = q * loss ** (q - 1) * lipschitz**2 * tree.square_norm(d)
        upload = Upload(change=statistics.scale(d, weight), h=slope + weight)
        return client, upload, metrics

    return fedavg(task, local, finetune=finetune)._replace(
        train=train,
        aggregate=aggregate,
        origin=lambda w, client, upload: Upload(tree.zeros(upload.change), None),
    )


def aggregate(w, uploads, cohort):
    """w + sum_k D_k / sum_k h_k, over the clients that reported."""
    mean = aggregation.mean(uploads, aggregation.uniform(cohort))
    # If no client reported, both sums are 0.
    h = jnp.where(mean.h > 0, mean.h, 1)
    return tree.add(w, statistics.scale(mean.change, 1 / h))
