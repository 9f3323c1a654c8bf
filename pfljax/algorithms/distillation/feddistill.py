"""FedDistill (FD): clients exchange their mean logits of each class.

Jeong et al., 2018, https://arxiv.org/abs/1811.11479 (Algorithm 1).

    Server   z_k[l], the mean logits of class l of every client k
    Client   w_k, the parameters of this client
    Message  Z_k[l], the mean of z_j[l] over the others, and which classes are known
    Upload   z_k[l], its mean logits in training for examples of class l, and counts

Each step minimises  F_k(w_k) + lam mean_b D(Z_k[y_b], a_b),  where a_b are the model's
own logits of example b of the minibatch, and the distance D is one of
softmax_ce   H(softmax Z, softmax a), the cross-entropy, as in the paper
kl           KL(softmax Z || softmax a): the same gradient, and 0 if both agree
mse          the mean over classes of (Z - a)^2
An example whose class no other client has sent adds 0. Logits are those before each
step, in training mode. Client k is evaluated with w_k.

Differs from the paper, where all clients take part in all rounds. Here the server keeps
the last logits of absent clients, and of classes that a client's steps did not meet.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms import _prototypes as prototypes
from pfljax.algorithms._classes import class_sums
from pfljax.algorithms._prototypes import Prototypes
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.losses import data_loss
from pfljax.core.optimizers import local_optimizer
from pfljax.core.ranges import NotNegative
from pfljax.core.training import over_batches
from pfljax.core.types import Algorithm, Local, Task


@component
def feddistill(
    task: Task,
    local: Local,
    *,
    lam: NotNegative = 1.0,
    distance: Literal["softmax_ce", "kl", "mse"] = "softmax_ce",
) -> Algorithm:
    """Builds FedDistill; `lam` = 0, or a single client, is local training.

    Args:
      lam: weight of the distance to the others' logits; 0 is local training.
      distance: distance between logits: "softmax_ce", "kl" or "mse".
    """
    size = task.num_classes

    def init(params, num_clients, key):
        return Prototypes(
            mean=jnp.zeros((num_clients, size, size)),
            count=jnp.zeros((num_clients, size)),
        )

    return alone(task, local)._replace(
        classes=True,
        init=init,
        message=lambda turn, tables, w: mean_of_others(tables, turn.id),
        train=training(task, local, lam, DISTANCES[distance]),
        aggregate=replace_tables,
        origin=prototypes.no_origin,
    )


def training(task, local, lam, distance):
    """The `train` of a client, which also sums its logits by class."""
    size = task.num_classes

    def train(turn, target, w, data):
        optimizer = local_optimizer(local, turn.round)

        def objective(w, batch, key):
            logits = task.logits(w, batch, key)
            loss = data_loss(task, logits, batch)
            penalty = lam * towards(target, logits, batch, distance)
            return loss + penalty, (logits, {"loss": loss, "penalty": penalty})

        def step(carry, batch, key):
            w, moments, seen = carry
            slope = jax.grad(objective, has_aux=True)
            grads, (logits, metrics) = slope(w, batch, key)
            updates, moments = optimizer.update(grads, moments, w)
            seen = tree.add(seen, class_sums(logits, batch, size))
            return (optax.apply_updates(w, updates), moments, seen), metrics

        seen = jnp.zeros((size, size)), jnp.zeros(size)
        start = w, optimizer.init(w), seen
        names = ("loss", "penalty")
        end, metrics = over_batches(step, start, data, turn, local, names)
        w, _, (total, count) = end
        return w, prototypes.from_sums(total, count), metrics

    return train


def towards(target, logits, batch, distance):
    """The mean distance to Z[y] over the examples that count, f32[]."""
    distances = distance(target.mean[batch.y], logits)
    known = batch.mask * (target.count[batch.y] > 0)
    # Over all examples, like the data loss: unknown classes make the pull weaker.
    return jnp.sum(known * distances) / jnp.maximum(jnp.sum(batch.mask), 1)


def softmax_ce(target, logits):
    """Cross-entropy of each example to the distribution of its target, f32[B]."""
    return optax.softmax_cross_entropy(logits, jax.nn.softmax(target))


def kl(target, logits):
    """Divergence of each example from the distribution of its target, f32[B]."""
    predicted = jax.nn.log_softmax(logits)
    wanted = jax.nn.log_softmax(target)
    return optax.losses.kl_divergence_with_log_targets(predicted, wanted)


def mse(target, logits):
    """Mean over classes of each example's squared distance to its target, f32[B]."""
    return jnp.mean(jnp.square(target - logits), -1)


DISTANCES = {"softmax_ce": softmax_ce, "kl": kl, "mse": mse}


def mean_of_others(tables, client_id):
    """Z_k, the mean logits of the other clients; its counts are numbers of clients."""
    known = (tables.count > 0).astype(jnp.float32)
    terms = tables.mean * known[..., None]
    # The sum over all is computed once for the whole cohort.
    own_terms, own_known = tree.take_or((terms, known), client_id)
    count = jnp.sum(known, 0) - own_known
    total = jnp.sum(terms, 0) - own_terms
    return prototypes.from_sums(total, count)


def replace_tables(tables, uploads, cohort):
    """The mean logits of all clients, replaced for the classes that were reported."""
    met = uploads.count > 0
    kept = tree.take(tables, cohort.ids)
    new = Prototypes(
        mean=jnp.where(met[..., None], uploads.mean, kept.mean),
        count=jnp.where(met, uploads.count, kept.count),
    )
    return aggregation.record(tables, new, cohort)
