"""Prototypes: the means by class of the features, or logits, of a client's examples.

For K = 3 classes, where a client has no example of the last one:

    mean  [[0.2, 1.0], [0.5, 0.0], [0.0, 0.0]]   count  [7, 2, 0]

Prototypes: Snell et al., NeurIPS 2017, https://arxiv.org/abs/1703.05175.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from pfljax.algorithms._classes import class_sums
from pfljax.core import aggregation, tree
from pfljax.core.losses import NEVER
from pfljax.core.training import mean_over_examples
from pfljax.core.types import (
    Array,
    Batch,
    Client,
    ClientData,
    Cohort,
    Message,
    Params,
    Task,
)

BATCH = 50  # examples at least in a forward pass, which reads the weights once


class Prototypes(NamedTuple):
    """A vector for each class; leaves have more axes if they are stacked."""

    mean: Any  # f32[K, e]
    count: Any  # f32[K], the examples in the mean; without any, mean is 0


class Nearest(NamedTuple):
    """A model whose prediction is the class of the nearest prototype."""

    w: Params
    prototypes: Prototypes


def width(task: Task) -> int:
    """e, the number of features of an example, as one vector."""
    return math.prod(task.feature_shape)


def none(task: Task) -> Prototypes:
    """The prototypes before any client has sent one."""
    classes = task.num_classes
    return Prototypes(
        mean=jnp.zeros((classes, width(task))),
        count=jnp.zeros(classes),
    )


def from_sums(total: Array, count: Array) -> Prototypes:
    """The means of these sums; 0, not NaN, for a class without examples."""
    mean = total / jnp.where(count > 0, count, 1)[:, None]
    return Prototypes(mean=mean, count=count)


def from_client(
    task: Task,
    params: Params,
    data: ClientData,
    batch_size: int,
) -> Prototypes:
    """The prototypes of all examples of a client, by its model in evaluation mode."""

    def shares(batch: Batch) -> tuple[Array, Array]:
        z = task.features(params, batch, None)
        total, count = class_sums(z, batch, task.num_classes)
        size = jnp.maximum(jnp.sum(batch.mask), 1)
        return total / size, count / size

    total, share = mean_over_examples(shares, data, max(batch_size, BATCH))
    # Divided by the share, not the count, which may be 0.9999999 of a whole number.
    means = from_sums(total, share)
    return means._replace(count=jnp.round(share * data.size))


def present(prototypes: Prototypes) -> Prototypes:
    """The prototypes with 1 in place of positive counts, which stay private."""
    is_present = prototypes.count > 0
    return prototypes._replace(count=is_present.astype(jnp.float32))


def no_origin(message: Message, client: Client, upload: Prototypes) -> Any:
    """The origin of uploaded prototypes: 0 for means; counts are no change."""
    return Prototypes(mean=jnp.zeros_like(upload.mean), count=None)


def norm(square: Array) -> Array:
    """The root of squared lengths, whose gradient at 0 is 0 and not infinite."""
    positive = square > 0
    # Both sides of a `where` have a gradient, so neither may be infinite.
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)


def unit(vectors: Array) -> Array:
    """The vectors f32[n, e] at length 1; those of zeros stay."""
    length = norm(jnp.sum(vectors**2, 1, keepdims=True))
    return vectors / jnp.where(length > 0, length, 1)


def nearness(task: Task, model: Nearest, batch: Batch) -> Array:
    """Logits [B, K]: minus the squared distance of the features to each prototype."""
    z = task.features(model.w, batch, None)
    vectors = z.reshape(len(z), 1, -1)
    # By differences: |z|^2 + |C|^2 - 2zC cancels if they are close.
    square = jnp.sum((vectors - model.prototypes.mean) ** 2, -1)
    return jnp.where(model.prototypes.count > 0, -square, NEVER)


def distances(z: Array, batch: Batch, known: Prototypes) -> tuple[Array, Array]:
    """(||C_k^j - C^j||, 1) f32[K] for the known classes of a minibatch; else 0."""
    in_batch = from_sums(*class_sums(z, batch, len(known.count)))
    square = jnp.sum((in_batch.mean - known.mean) ** 2, -1)
    both = (in_batch.count > 0) & (known.count > 0)
    return jnp.where(both, norm(square), 0), both.astype(jnp.float32)


def pairs(uploads: Prototypes, cohort: Cohort) -> tuple[Array, Array]:
    """(means [M, K, e] by client id, the weight of each (k, j), f32[M, K]).

    Several devices exchange the uploads here, once: otherwise each later step of the
    server would sum over devices.
    """
    weights = uploads.count * aggregation.uniform(cohort)[:, None]
    order = jnp.argsort(cohort.ids)
    return tree.take((uploads.mean, weights), order)


def pair_loss(logits: Array, weight: Array) -> Array:
    """The mean over (k, j) of the cross-entropy of logits [M K, K] to the class j."""
    clients, classes = weight.shape
    labels = jnp.tile(jnp.arange(classes), clients)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return jnp.sum(weight.ravel() * losses) / jnp.maximum(jnp.sum(weight), 1)


def renew(known: Prototypes, uploads: Prototypes, cohort: Cohort) -> Prototypes:
    """C^j, the mean over all examples of class j; without any, the one before."""
    reported = aggregation.uniform(cohort)
    count = uploads.count * reported[:, None]
    total = jnp.sum(uploads.count * cohort.mask[:, None], 0)
    mean = aggregation.counted_mean(uploads.mean, count[..., None], known.mean)
    return Prototypes(mean=mean, count=jnp.where(total > 0, total, known.count))
