"""CCVR: the server trains FedAvg's head again, on features drawn for each class.

Luo et al., NeurIPS 2021, https://arxiv.org/abs/2106.05001 (Algorithm 1).

    Server   w, and h, the calibrated head    Client  nothing
    Message  w, and then the new w
    Upload   w_k, and then n_kj, m_kj and S_kj of each class j

The first exchange is FedAvg. In the second, m_kj is the mean of the features of the
n_kj examples of class j of client k, by the new w in evaluation mode, and S_kj the sum
of (z - m_kj)(z - m_kj)'. With n_j = sum_k n_kj, the server computes the Gaussian of all
features of class j,

    mu_j = sum_k n_kj m_kj / n_j
    Sigma_j = sum_k (S_kj + n_kj (m_kj - mu_j)(m_kj - mu_j)') / (n_j - 1)

It draws `draws` features of each class with n_j > 1, and takes `server_steps` steps
down their cross-entropy from the head of w to h. Every client is evaluated with the
body of w under h. Rounds go on from w.

Differs from the paper, where all clients send the Gaussians once, after training. Here
the participants do so in each round, as every round may be evaluated. FL-bench and
fluke divide S_kj by n_kj where their formula asks for n_kj - 1, and so underestimate
Sigma_j.
"""

from typing import Any, NamedTuple

import jax

from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.global_model import _class_gaussians as gaussians
from pfljax.core import tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.losses import data_loss
from pfljax.core.optimizers import ServerRate, server_rate
from pfljax.core.ranges import AtLeastOne, Count
from pfljax.core.server_model import wrap_server
from pfljax.core.training import descend
from pfljax.core.types import Algorithm, Local, Params, Task


class Server(NamedTuple):
    """FedAvg's model, and the head under which its body is evaluated."""

    w: Params
    head: Any


@component
def ccvr(
    task: Task,
    local: Local,
    *,
    draws: AtLeastOne = 200,
    server_steps: Count = 100,
    server_lr: ServerRate = None,
    finetune: Count = 0,
) -> Algorithm:
    """Builds CCVR; `server_steps` = 0 is FedAvg.

    Uploads grow with the square of the number of features.

    Args:
      draws: features that are drawn for each class.
      server_steps: steps of the head on all of these; 0 is FedAvg.
      server_lr: rate of these steps; None for that of local training.
      finetune: local steps before the evaluation; 0 for none.
    """
    in_head = tree.matches(task.groups, "head")
    shared = fedavg(task, local, finetune=finetune)

    def with_own_head(w):
        return Server(w=w, head=tree.split(w, in_head)[0])

    def calibrated(server):
        _, body = tree.split(server.w, in_head)
        return tree.merge(server.head, body)

    def average(server, uploads, cohort):
        return with_own_head(shared.aggregate(server.w, uploads, cohort))

    def calibrate(server, uploads, cohort):
        key = derive(cohort.key, "features")
        pooled = gaussians.pool(uploads, cohort)
        batch = gaussians.draw(task, pooled, draws, key)

        def loss(head):
            logits = task.head(calibrated(server._replace(head=head)), batch.x)
            return data_loss(task, logits, batch)

        rate = server_rate(server_lr, local, cohort.round)
        head = descend(jax.grad(loss), server.head, server_steps, rate)
        return server._replace(head=head)

    def send_moments(turn, w, client, data):
        return client, gaussians.measure(task, w, data, local.batch_size), {}

    method = wrap_server(shared, calibrated)._replace(
        classes=True,
        init=lambda params, num_clients, key: with_own_head(params),
        message=lambda turn, server, client: server.w,
        aggregate=average,
        parts=("head",),
    )
    return method._replace(
        then=method._replace(
            train=send_moments,
            work=lambda steps, size, is_first: 0 * steps,
            aggregate=calibrate,
            origin=no_origin,
        )
    )


def no_origin(message, client, upload):
    """Zeros for the means and sums of features; counts are no change."""
    return tree.zeros(upload)._replace(count=None)
