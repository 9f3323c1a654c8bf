"""FedPCL: clients learn from the prototypes of all clients, by contrast.

Tan et al., NeurIPS 2022, https://arxiv.org/abs/2209.10083 (Algorithm 1).

    Server   the prototypes c_kj of every client k, as last sent
    Client   w_k, its parameters, of which the body is trained
    Message  all c_kj, and which are known     Upload  c_kj, and the numbers of examples

c_kj is the mean of the features of the examples of class j of client k, where f(x) has
length 1, and c_j the mean over the clients that have class j. Client k minimises

    CE(f . c_j / tau, y) + mean_i CE(f . c_ij / tau, y)

over the classes j with a known prototype and the clients i that have sent; a class that
client i lacks has c_j in place of c_ij. In the first round there are no prototypes, and
only uploads. Client k predicts the class of its own nearest prototype, by the trained
body, and never a class that it lacks.

Differs from the paper, where frozen backbones give the inputs: give a model with frozen
leaves (`--freeze`). PFLlib stacks prototypes in the order in which a client first saw
its classes, and compares them with class numbers.
"""

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms import _prototypes as prototypes
from pfljax.algorithms._prototypes import Nearest, Prototypes, unit
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.losses import NEVER, mean
from pfljax.core.ranges import Positive
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Task


@component
def fedpcl(task: Task, local: Local, *, tau: Positive = 0.07) -> Algorithm:
    """Builds FedPCL.

    Args:
      tau: temperature of the cosines.
    """

    def features(w, batch, key):
        return unit(task.features(w, batch, key).reshape(len(batch.mask), -1))

    of_length_one = task._replace(features=features)

    def own_prototypes(w, data):
        return prototypes.from_client(of_length_one, w, data, local.batch_size)

    def train(turn, every, w, data):
        common, each, heard = fill(every)

        def objective(w, batch, key):
            z = features(w, batch, key)
            # A class without any prototype has no logit.
            counted = batch._replace(mask=batch.mask * (common.count > 0)[batch.y])

            def contrast(means):
                logits = jnp.matmul(z, means.T, precision="highest") / tau
                logits = jnp.where(common.count > 0, logits, NEVER)
                losses = optax.losses.softmax_cross_entropy_with_integer_labels
                return mean(losses(logits, batch.y), counted)

            loss = contrast(common.mean)
            return loss + aggregation.mean(jax.vmap(contrast)(each), heard), loss

        w, metrics = fit_objective(objective, w, data, turn, local)
        return w, own_prototypes(w, data), metrics

    return alone(task, local)._replace(
        init=lambda params, num_clients, key: tree.stack_copies(
            prototypes.none(task), num_clients
        ),
        message=lambda turn, every, w: every,
        train=train,
        aggregate=aggregation.record,
        personal=lambda turn, every, w, data: Nearest(w, own_prototypes(w, data)),
        predict=lambda model, batch: prototypes.nearness(of_length_one, model, batch),
        origin=prototypes.no_origin,
        uploads_by_client=True,
        classes=True,
        parts=("body",),
    )


def fill(every: Prototypes):
    """(the mean prototypes, those of each client f32[C, K, e], who has sent f32[C])."""
    known = (every.count > 0).astype(jnp.float32)
    count = known.sum(0)
    total = jnp.sum(known[..., None] * every.mean, 0)
    common = prototypes.from_sums(total, count)
    each = jnp.where(known[..., None] > 0, every.mean, common.mean)
    return common, each, known.max(1)
