"""FedProto. Tan et al., AAAI 2022, https://arxiv.org/abs/2105.00243 (Algorithm 1).

    Server   C^j, a prototype of each class j        Client  w_k, its own params
    Message  C^j, and which of them are known        Upload  C_k^j, and |D_kj| rows
C_k^j is the mean of the features of client k's rows of class j. Each step minimises
F_k(w_k) + lam sum_j ||C_k^j - C^j||, where C_k^j is that of the minibatch and j runs
over its classes whose C^j is known. After training C_k^j is that of all rows, in
evaluation mode, and C^j <- sum_k |D_kj| C_k^j / sum_k |D_kj| over those that have
class j; a class that nobody has keeps its C^j. Client k is judged by argmin_j
||f(x) - C^j||, where f is its own body.

Differs from the paper: eq. 6 divides C^j by the number of clients that have class j as
well, and would shrink it as they grow; its proofs have the mean.
"""

from typing import Literal

import jax.numpy as jnp

from pfljax.algorithms.distillation import _prototypes as prototypes
from pfljax.algorithms.distillation._prototypes import Prototypes
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation
from pfljax.core.losses import cross_entropy
from pfljax.core.training import fit, reporting
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import NotNegative, component


@component
def fedproto(
    task: Task,
    local: Local,
    *,
    lam: NotNegative = 1.0,
    judged_by: Literal["prototypes", "head"] = "prototypes",
) -> Algorithm:
    """Builds FedProto; `lam` = 0 trains as local training does.

    `judged_by` = "head" asks the client's own head, as the data loss does.

    Args:
      lam: weight of the distance to prototypes; 0 trains alone.
      judged_by: nearest of the "prototypes", or the client's own "head".
    """

    def train(turn, known, w, data):
        def pull(z, batch):
            distance, _ = distances(z, batch, known)
            return lam * jnp.sum(distance)

        gradient = pull_features(task, pull)
        w, metrics = fit(task.loss, w, data, turn, local, gradient)
        upload = prototypes.from_client(task, w, data, local.batch_size)
        return w, upload, metrics

    method = alone(task, local)._replace(
        init=lambda params, num_clients, key: prototypes.none(task),
        message=lambda turn, known, w: known,
        train=train,
        aggregate=average,
        origin=prototypes.no_origin,
        parts=("body",),
    )
    if judged_by == "head":
        return method
    return method._replace(
        personal=lambda turn, known, w, data: prototypes.Nearest(w, known),
        predict=lambda model, batch: prototypes.nearness(task, model, batch),
    )


def average(known, uploads, cohort):
    """C^j, the mean over the rows of those who have class j; nobody's is as before."""
    reported = aggregation.uniform(cohort)
    rows = uploads.count * reported[:, None]
    total = jnp.sum(rows, 0)
    mean = aggregation.counted_mean(uploads.mean, rows[..., None], known.mean)
    return Prototypes(mean=mean, count=jnp.where(total > 0, total, known.count))


def distances(z, batch, known):
    """(||C_k^j - C^j||, 1) f32[K] of the minibatch's classes that are known; else 0."""
    sums = prototypes.class_sums(z, batch, len(known.count))
    own = prototypes.from_sums(*sums)
    square = jnp.sum((own.mean - known.mean) ** 2, -1)
    both = (own.count > 0) & (known.count > 0)
    distance = jnp.where(both, prototypes.norm(square), 0)
    return distance, both.astype(jnp.float32)


def pull_features(task, pull):
    """The gradient of the data loss + pull(features, batch), for `fit`."""

    def objective(w, batch, key):
        # One forward pass for both terms: two would move running statistics twice.
        z = task.features(w, batch, key)
        logits = task.head(w, z, batch.mask, key)
        loss = cross_entropy(logits, batch)
        return loss + pull(z, batch), loss

    return reporting(objective)
