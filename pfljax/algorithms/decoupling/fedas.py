"""FedAS: clients align the shared body with their own, and informed clients weigh more.

Yang, Huang and Ye, CVPR 2024, https://github.com/xiyuanyang45/FedAS (their code).

    Server   w = (b, h)       Client  w_k, as it was last trained
    Message  b                Upload  w_k, and the trace t_k of its Fisher matrix

Before its training, client k computes the mean features pi_j of its examples of each
class j by its old body, and moves the received body towards them: each step descends
sum_j mean_{y = j} MSE(b(x), pi_j) over the classes of a minibatch. From that body and
its own head it trains the whole of w_k. The server takes w <- sum_k t_k w_k / sum t_k.
Client k is evaluated with w_k, and before it first takes part with w.

The authors' code aligns the server's model in place, so that each client starts from
what the one before it has left. Its t_k is a sum over minibatches of the squared
gradient of their mean loss (diagonal="batches"), which grows with the number of
minibatches; "examples" is the mean of the squared gradients of single examples.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms import _fisher as fisher
from pfljax.algorithms import _prototypes as prototypes
from pfljax.algorithms._classes import class_sums
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, leaves, tree
from pfljax.core.factories import component
from pfljax.core.keys import fold
from pfljax.core.minibatches import steps_per_epoch
from pfljax.core.ranges import Epochs, NotNegative
from pfljax.core.training import fit, fit_part, steps_in_epochs, with_epochs
from pfljax.core.types import Algorithm, Local, Params, Task


class Upload(NamedTuple):
    """Trained parameters and their information."""

    w: Params
    trace: Any  # f32[], t_k


@component
def fedas(
    task: Task,
    local: Local,
    *,
    align_epochs: Epochs = 1,
    align_lr: NotNegative | None = None,
    diagonal: Literal["examples", "batches"] = "batches",
) -> Algorithm:
    """Builds FedAS; without `align_epochs` it is FedPer with other weights.

    Args:
      align_epochs: epochs in which the body is aligned; None for those of training.
      align_lr: rate of the alignment; None for that of local training.
      diagonal: whose gradients are squared: those of "examples" or of "batches".
    """
    in_body = leaves.of_kind(task, "body")
    rate = local.learning_rate if align_lr is None else align_lr
    aligning = local._replace(learning_rate=rate)

    def align(turn, b, w, data):
        known = prototypes.from_client(task, w, data, local.batch_size)

        def loss(w, batch, key):
            z = task.features(w, batch, key)
            square = (z.reshape(len(z), -1) - known.mean[batch.y]) ** 2
            total, count = class_sums(square.mean(1), batch, task.num_classes)
            return jnp.sum(total[:, 0] / jnp.maximum(count, 1))

        first = tree.merge(b, tree.split(w, in_body)[1])
        turn = with_epochs(fold(turn, "align"), local, align_epochs)
        return fit_part(loss, first, in_body, data, turn, aligning)[0]

    def train(turn, b, w, data):
        w, metrics = fit(task.loss, align(turn, b, w, data), data, turn, local)
        squares = fisher.KINDS[diagonal]
        mean = fisher.diagonal(task.loss, w, data, local.batch_size, squares)
        trace = sum(jax.tree.leaves(jax.tree.map(jnp.sum, mean)))
        if diagonal == "batches":
            trace *= steps_per_epoch(local, data.size)
        return w, Upload(w, trace), metrics

    def aggregate(w, uploads, cohort):
        weight = uploads.trace * aggregation.uniform(cohort)
        return tree.where(weight.sum() > 0, aggregation.mean(uploads.w, weight), w)

    def origin(b, w, upload):
        return Upload(tree.merge(b, tree.split(w, in_body)[1]), None)

    return fedavg(task, local)._replace(
        init_client=lambda params, client_id, key: params,
        message=lambda turn, w, client: tree.split(w, in_body)[0],
        train=train,
        work=lambda steps, size, is_first: (
            steps
            + steps_in_epochs(steps, local, align_epochs)
            + steps_per_epoch(local, size)
        ),
        aggregate=aggregate,
        personal=lambda turn, w, client, data: client,
        newcomer=lambda turn, w, data: w,
        origin=origin,
        uploads_by_client=True,
        classes=True,
        parts=("body", "head"),
    )
