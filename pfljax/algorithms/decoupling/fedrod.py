"""FedRoD: a generic model of balanced classes, and on top of it a head of each client.

Chen and Chao, ICLR 2022, https://arxiv.org/abs/2107.00778.

    Server   w = (b, h)       Client  q_k, the personal head of this client
    Message  w                Upload  w_k, after local training

Let z = b(x), and n_kj the number of examples of class j of client k. Each step descends

    CE(h(z) + gamma log n_k, y)    in w, the balanced softmax, and
    CE(h(z) + q(z), y)             in q_k alone, with h(z) and z as constants.

The server takes w <- sum_k n_k w_k / sum_k n_k. Its own model predicts with h(z), the
generic predictor, and client k with h(z) + q_k(z). q_k starts as the first h. A client
that never took part predicts with h(z). The paper's hypernetwork for q is left out.

FL-bench predicts with q_k(z) alone, and both of its losses move the body. In easyFL the
generic loss lacks its logarithm and its sign.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms._classes import class_counts
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import leaves, tree
from pfljax.core.factories import component
from pfljax.core.losses import NEVER, data_loss
from pfljax.core.ranges import NotNegative
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Params, Task


class Model(NamedTuple):
    """A client's two predictors."""

    w: Params
    q: Params  # the leaves of a head
    share: Any  # f32[], 1, or 0 for the generic predictor alone


@component
def fedrod(task: Task, local: Local, *, gamma: NotNegative = 1.0) -> Algorithm:
    """Builds FedRoD; `gamma` = 0 trains w as FedAvg does.

    Args:
      gamma: exponent of the numbers of examples in the balanced softmax.
    """
    in_head = leaves.of_kind(task, "head")
    fix = jax.lax.stop_gradient

    def both(w, q, batch, key):
        z = task.features(w, batch, key)
        own = fix(tree.split(w, in_head)[1])
        generic = task.head(w, z, batch.mask, key)
        return generic, task.head(tree.merge(q, own), fix(z), batch.mask, key)

    def train(turn, w, q, data):
        counts = class_counts(data, task.num_classes, local.batch_size)
        known = (counts > 0) | (gamma == 0)
        prior = jnp.where(known, gamma * jnp.log(jnp.maximum(counts, 1)), NEVER)

        def objective(models, batch, key):
            w, q = models
            generic, own = both(w, q, batch, key)
            fair = data_loss(task, generic + prior, batch)
            personal = data_loss(task, fix(generic) + own, batch)
            return fair + personal, data_loss(task, generic, batch)

        (w, q), metrics = fit_objective(objective, (w, q), data, turn, local)
        return q, w, metrics

    def predict(model, batch):
        generic, own = both(model.w, model.q, batch, None)
        return generic + model.share * own

    def newcomer(turn, w, data):
        return Model(w, tree.split(w, in_head)[0], jnp.float32(0))

    return fedavg(task, local)._replace(
        init_client=lambda params, client_id, key: tree.split(params, in_head)[0],
        train=train,
        personal=lambda turn, w, q, data: Model(w, q, jnp.float32(1)),
        newcomer=newcomer,
        predict=predict,
        classes=True,
        parts=("body", "head"),
    )
