"""Gaussians of the features of each class, with one covariance, and their classifier.

With the shares pi_j of the classes, the linear discriminant of Gaussians is

    logit_j = mu_j' S z - mu_j' S mu_j / 2 + log pi_j,   S = Sigma^-1
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms._classes import class_sums
from pfljax.algorithms._covariance import eigh, inverse
from pfljax.core import tree
from pfljax.core.types import Array, Batch, Task

PARTS = 10  # of the grid of each share, from 0 to 1
SHRINKAGE = 1e-4  # of a covariance, towards a multiple of I


class Gaussians(NamedTuple):
    """Of the features of all classes."""

    mean: Any  # f32[K, e]
    covariance: Any  # f32[e, e]


class Head(NamedTuple):
    """A linear classifier of features."""

    kernel: Any  # f32[e, K]
    bias: Any  # f32[K]


def logits(head: Head, z: Array) -> Array:
    """Logits [B, K] of features [B, e]."""
    return jnp.matmul(z, head.kernel, precision="highest") + head.bias


def discriminant(gaussians: Gaussians, shares: Array) -> Head:
    """The linear discriminant of Gaussians and the shares f32[K] of the classes."""
    mean, covariance = gaussians
    return with_bias(multiply(inverse(shrink(covariance)), mean.T), mean, shares)


def with_bias(kernel: Array, mean: Array, shares: Array) -> Head:
    """The head whose kernel is S mu."""
    return Head(kernel, jnp.log(shares) - jnp.sum(mean.T * kernel, 0) / 2)


def shrink(covariance: Array) -> Array:
    """The covariance, slightly nearer to the multiple of I with its trace."""
    width = len(covariance)
    round_one = jnp.trace(covariance) / width * jnp.eye(width)
    return tree.lerp(covariance, round_one, SHRINKAGE)


def mix(known: Gaussians, own: Gaussians, beta: tuple[Any, Any]) -> Gaussians:
    """The shares `beta` of own means and of the own covariance, beside the known."""
    return Gaussians(*map(tree.lerp, known, own, beta))


def estimate(rows: Batch, known: Gaussians, ridge: Any) -> Gaussians:
    """Those of features `rows.x` [B, e] that count; absent classes have known means."""
    total, count = class_sums(rows.x, rows, len(known.mean))
    means = total / jnp.maximum(count, 1)[:, None]
    mean = jnp.where(count[:, None] > 0, means, known.mean)
    away = (rows.x - mean[rows.y]) * rows.mask[:, None]
    scatter = jnp.matmul(away.T, away, precision="highest")
    freedom = jnp.maximum(rows.mask.sum() - 1, 1)
    return Gaussians(mean, scatter / freedom + ridge * jnp.eye(len(scatter)))


def adapt(
    task: Task, rows: Batch, known: Gaussians, shares: Array, ridge: Any
) -> Gaussians:
    """Between the known Gaussians and those of the features `rows.x` [B, e].

    The shares of both are those with the least loss of features in two folds, each
    classified by the Gaussians of the other. Folds halve every class; examples that are
    alone in their class are in none.
    """
    member = jax.nn.one_hot(rows.y, len(known.mean)) * rows.mask[:, None]
    rank = jnp.sum(jnp.cumsum(member, 0) * member, 1)
    is_shared = rows.mask * (member.sum(0)[rows.y] > 1)
    grid = jnp.arange(PARTS + 1) / PARTS
    folds = [rows._replace(mask=is_shared * (rank % 2 == half)) for half in (0, 1)]

    values, vectors = eigh(shrink(known.covariance))
    whiten = vectors / jnp.sqrt(values)

    def losses(fold: Batch, other: Batch) -> Array:
        own = estimate(other, known, ridge)
        # In these coordinates, every mixture of both covariances is diagonal.
        values, vectors = eigh(multiply(whiten.T, shrink(own.covariance), whiten))
        rotate = multiply(whiten, vectors)
        z, known_mean, own_mean = (
            multiply(a, rotate) for a in (fold.x, known.mean, own.mean)
        )

        def loss(of_mean: Array, of_covariance: Array) -> Array:
            mean = tree.lerp(known_mean, own_mean, of_mean)
            kernel = mean.T / (1 - of_covariance + of_covariance * values)[:, None]
            outputs = logits(with_bias(kernel, mean, shares), z)
            return jnp.sum(fold.mask * task.example_losses(outputs, fold.y))

        of_means = jax.vmap(loss, (0, None))
        return jax.vmap(of_means, (None, 0))(grid, grid)

    total = losses(*folds) + losses(*reversed(folds))
    covariance, mean = jnp.unravel_index(jnp.argmin(total), total.shape)
    beta = grid[mean], grid[covariance]
    return mix(known, estimate(rows, known, ridge), beta)


def multiply(*factors: Array) -> Array:
    """The matrix product, which an accelerator's default would round to a few bits."""
    return jnp.linalg.multi_dot(factors, precision="highest")
