"""Means by class of what a model makes of a client's rows: features, or logits.

A prototype of class j is the mean of the features of its rows. Of K = 3 classes, where
a client has no row of the last one:

    mean  [[.2, 1.], [.5, 0.], [0., 0.]]   count  [7, 2, 0]

Prototypes: Snell et al., NeurIPS 2017, https://arxiv.org/abs/1703.05175.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from pfljax.algorithms._classes import class_sums
from pfljax.core import aggregation, tree
from pfljax.core.training import mean_over_rows
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

ROWS_AT_ONCE = 50  # or a minibatch: a model's weights are read once for all of them


UNKNOWN = -1e30  # the logit of a class without a prototype: finite, below all others


class Prototypes(NamedTuple):
    """A vector for each class; leaves have more axes where they are stacked."""

    mean: Any  # f32[K, e]
    count: Any  # f32[K], what it is the mean of; 0 where there is none, and mean is 0


class Nearest(NamedTuple):
    """A model whose prediction is the class of the nearest prototype."""

    w: Params
    prototypes: Prototypes


def width(task: Task) -> int:
    """e, the number of features of a row; those of a convolution are one vector."""
    return math.prod(task.feature_shape)


def none(task: Task) -> Prototypes:
    """Prototypes before anybody has sent one."""
    classes = task.num_classes
    return Prototypes(
        mean=jnp.zeros((classes, width(task))),
        count=jnp.zeros(classes),
    )


def from_sums(total: Array, count: Array) -> Prototypes:
    """The means of these sums; 0 for a class without rows, and not NaN."""
    mean = total / jnp.where(count > 0, count, 1)[:, None]
    return Prototypes(mean=mean, count=count)


def from_client(
    task: Task,
    params: Params,
    data: ClientData,
    batch_size: int,
) -> Prototypes:
    """The prototypes of all rows of a client, by its model in evaluation mode."""

    def shares(batch: Batch) -> tuple[Array, Array]:
        z = task.features(params, batch, None)
        total, count = class_sums(z, batch, task.num_classes)
        rows = jnp.maximum(jnp.sum(batch.mask), 1)
        return total / rows, count / rows

    total, share = mean_over_rows(shares, data, max(batch_size, ROWS_AT_ONCE))
    # Of shares first: a whole number of rows may come back as .9999999 of it.
    means = from_sums(total, share)
    return means._replace(count=jnp.round(share * data.size))


def present(prototypes: Prototypes) -> Prototypes:
    """The prototypes with 1 in the place of counts: the number of rows is not sent."""
    has_rows = prototypes.count > 0
    return prototypes._replace(count=has_rows.astype(jnp.float32))


def no_origin(message: Message, client: Client, upload: Prototypes) -> Any:
    """The origin of uploaded prototypes: means begin at 0, counts are no change."""
    return Prototypes(mean=jnp.zeros_like(upload.mean), count=None)


def norm(square: Array) -> Array:
    """The root of squared lengths, whose slope at 0 is 0 and not infinite."""
    positive = square > 0
    # Both sides of a `where` have a slope, so neither may be infinite.
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)


def nearness(task: Task, model: Nearest, batch: Batch) -> Array:
    """Logits [B, K]: minus the squared distance of the features to each prototype."""
    z = task.features(model.w, batch, None)
    vectors = z.reshape(len(z), 1, -1)
    # By differences: |z|^2 + |C|^2 - 2zC cancels where they are close.
    square = jnp.sum((vectors - model.prototypes.mean) ** 2, -1)
    return jnp.where(model.prototypes.count > 0, -square, UNKNOWN)


def pairs(uploads: Prototypes, cohort: Cohort) -> tuple[Array, Array]:
    """(means [M, K, e] by client id, the weight of each (k, j), f32[M, K]).

    Several devices exchange the uploads here, once: the steps of a server that follow
    would sum over devices every time.
    """
    weights = uploads.count * aggregation.uniform(cohort)[:, None]
    order = jnp.argsort(cohort.ids)
    return tree.take((uploads.mean, weights), order)


def pair_loss(logits: Array, weight: Array) -> Array:
    """The mean over (k, j) of the cross-entropy of logits [M K, K] to the class j."""
    clients, classes = weight.shape
    labels = jnp.tile(jnp.arange(classes), clients)
    rows = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return jnp.sum(weight.ravel() * rows) / jnp.maximum(jnp.sum(weight), 1)
