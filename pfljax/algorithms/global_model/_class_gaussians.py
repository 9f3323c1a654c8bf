"""The Gaussians of the features of each class, from moments that clients send.

Moments of several clients add up exactly: the pooled Gaussian is that of all features
together, however they lie with the clients.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms import _prototypes as prototypes
from pfljax.algorithms._covariance import root
from pfljax.core import aggregation
from pfljax.core.training import mean_over_examples
from pfljax.core.types import Array, Batch, ClientData, Cohort, Key, Params, Task

RIDGE = 1e-4  # of the mean variance, added to all: a covariance may be singular


class Moments(NamedTuple):
    """Of the features of each class at one client; stacked over a cohort, [M, ...]."""

    mean: Any  # f32[K, e]
    count: Any  # f32[K]
    scatter: Any  # f32[K, e, e], S


class Pooled(NamedTuple):
    """The Gaussian of each class."""

    mean: Any  # f32[K, e]
    covariance: Any  # f32[K, e, e], with n - 1 for n examples
    count: Any  # f32[K]


def measure(task: Task, w: Params, data: ClientData, batch_size: int) -> Moments:
    """The moments of all examples of a client, in evaluation mode."""
    known = prototypes.from_client(task, w, data, batch_size)

    def scatter(batch: Batch) -> Array:
        z = task.features(w, batch, None).reshape(len(batch.y), -1)
        away = (z - known.mean[batch.y]) * batch.mask[:, None]
        member = jax.nn.one_hot(batch.y, task.num_classes)
        products = jnp.einsum("bk,bi,bj->kij", member, away, away, precision="highest")
        return products / jnp.maximum(batch.mask.sum(), 1)

    mean = mean_over_examples(scatter, data, max(batch_size, prototypes.BATCH))
    return Moments(*known, scatter=data.size * mean)


def pool(moments: Moments, cohort: Cohort) -> Pooled:
    """The Gaussians of the features of all clients that reported."""
    moments, cohort = aggregation.gather(moments, cohort)
    count = moments.count * cohort.mask[:, None]
    total = count.sum(0)
    mean = jnp.einsum("mk,mke->ke", count, moments.mean, precision="highest")
    mean /= jnp.maximum(total, 1)[:, None]
    away = moments.mean - mean
    between = jnp.einsum("mk,mki,mkj->kij", count, away, away, precision="highest")
    within = jnp.tensordot(cohort.mask, moments.scatter, 1, precision="highest")
    freedom = jnp.maximum(total - 1, 1)[:, None, None]
    return Pooled(mean=mean, covariance=(within + between) / freedom, count=total)


def draw(task: Task, pooled: Pooled, draws: int, key: Key) -> Batch:
    """`draws` features of each class, with mask 0 if it has fewer than 2 examples."""
    mean, covariance, count = pooled
    classes, width = mean.shape
    variance = jnp.trace(covariance, axis1=1, axis2=2) / width
    ridge = jnp.maximum(RIDGE * variance, 1e-12)[:, None, None]
    roots = jax.vmap(root)(covariance + ridge * jnp.eye(width))
    noise = jax.random.normal(key, (classes, draws, width))
    z = mean[:, None] + jnp.einsum("kij,kdj->kdi", roots, noise, precision="highest")
    return Batch(
        x=z.reshape(-1, *task.feature_shape),
        y=jnp.repeat(jnp.arange(classes), draws),
        mask=jnp.repeat((count > 1).astype(jnp.float32), draws),
    )
