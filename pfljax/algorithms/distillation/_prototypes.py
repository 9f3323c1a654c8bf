"""Means by class of what a model makes of a client's rows: features, or logits.

A prototype of class j is the mean of the features of its rows. Of K = 3 classes, where
a client has no row of the last one:

    mean  [[.2, 1.], [.5, 0.], [0., 0.]]   count  [7, 2, 0]

Prototypes: Snell et al., NeurIPS 2017, https://arxiv.org/abs/1703.05175.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core.training import mean_over_rows
from pfljax.core.types import Array, Batch, Client, ClientData, Message, Params, Task

ROWS_AT_ONCE = 50  # or a minibatch: a model's weights are read once for all of them


class Prototypes(NamedTuple):
    """A vector for each class; leaves have more axes where they are stacked."""

    mean: Any  # f32[K, e]
    count: Any  # f32[K], what it is the mean of; 0 where there is none, and mean is 0


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


def class_sums(z: Array, batch: Batch, classes: int) -> tuple[Array, Array]:
    """(sum of the outputs z [B, ...] of each class f32[K, e], their number f32[K])."""
    member = jax.nn.one_hot(batch.y, classes) * batch.mask[:, None]
    vectors = z.reshape(len(z), -1)
    # An accelerator's default would round features to a few bits.
    total = jnp.matmul(member.T, vectors, precision="highest")
    return total, jnp.sum(member, 0)


def of_sums(total: Array, count: Array) -> Prototypes:
    """The means of these sums; 0 for a class without rows, and not NaN."""
    mean = total / jnp.where(count > 0, count, 1)[:, None]
    return Prototypes(mean=mean, count=count)


def of_client(
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
    means = of_sums(total, share)
    return means._replace(count=jnp.round(share * data.size))


def class_counts(data: ClientData, classes: int, batch_size: int) -> Array:
    """How many rows of each class a client has, f32[K]."""

    def shares(batch: Batch) -> Array:
        _, count = class_sums(batch.mask, batch, classes)
        return count / jnp.maximum(jnp.sum(batch.mask), 1)

    share = mean_over_rows(shares, data, batch_size)
    return jnp.round(share * data.size)


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
