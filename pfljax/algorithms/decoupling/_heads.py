"""FedPAC's statistics of features, and the mixtures of heads that follow from them."""

from typing import Any

import jax
import jax.numpy as jnp
from optax.projections import projection_simplex

from pfljax.algorithms import _prototypes as prototypes
from pfljax.algorithms._classes import class_sums
from pfljax.core.losses import mean
from pfljax.core.training import mean_over_examples
from pfljax.core.types import Array, Batch, ClientData, Params, Task

STEPS = 500
LEAST = 1e-3  # of the weights in a mixture


def moments(
    task: Task, w: Params, data: ClientData, batch_size: int
) -> tuple[Array, Array]:
    """(H_k f32[K, e], V_k f32[]) of a client's examples, by a model."""

    def value(batch: Batch) -> tuple[Array, Array]:
        z = task.features(w, batch, None)
        total, _ = class_sums(z, batch, task.num_classes)
        square = jnp.sum(z.reshape(len(z), -1) ** 2, 1)
        return total / jnp.maximum(jnp.sum(batch.mask), 1), mean(square, batch)

    means, square = mean_over_examples(value, data, max(batch_size, prototypes.BATCH))
    variance = (square - jnp.sum(means**2)) / jnp.maximum(data.size, 1)
    return means, jnp.maximum(variance, 0)


def mix_heads(heads: Any, means: Array, variance: Array, known: Array) -> Any:
    """The mixture of stacked heads for each client of a cohort, leaves [M, ...].

    Args:
      heads: leaves [M, ...].
      means: H, f32[M, K, e].
      variance: V, f32[M].
      known: bool[M], False for one that has the weight 0.
    """
    solve = jax.vmap(nearest_mixture, (None, None, None, 0))
    alpha = solve(means, variance, known, jnp.arange(len(known)))
    alpha = jnp.where(alpha < LEAST, 0, alpha)
    return jax.tree.map(
        lambda leaf: jnp.tensordot(alpha, leaf, 1, precision="highest"), heads
    )


def nearest_mixture(means: Array, variance: Array, known: Array, place: Array) -> Array:
    """The weights of least  sum_j a_j^2 V_j + ||H_k - sum_j a_j H_j||^2, f32[M].

    They are not negative and have the sum 1. They are found by accelerated projected
    gradient steps, whose momentum is dropped where it points upwards.

    Args:
      means: H, f32[M, ...].
      variance: V, f32[M].
      known: bool[M], False for one that has the weight 0.
      place: k, i32[].
    """
    apart = (means - means[place]).reshape(len(means), -1)
    # As the weights have the sum 1, the distance is that of a mixture of differences.
    matrix = jnp.matmul(apart, apart.T, precision="highest") + jnp.diag(variance)
    matrix = jnp.where(known[:, None] & known, matrix, 0)
    # No eigenvalue exceeds the largest sum of a row.
    most = jnp.maximum(jnp.abs(matrix).sum(1).max(), jnp.finfo(jnp.float32).tiny)

    def project(a: Array) -> Array:
        return projection_simplex(jnp.where(known, a, -1e9))

    def step(_: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        a, ahead, count = carry
        slope = jnp.matmul(matrix, ahead, precision="highest") / most
        new = project(ahead - slope)
        upwards = jnp.dot(ahead - new, new - a) > 0
        count = jnp.where(upwards, 0, count + 1)
        return new, new + count / (count + 3) * (new - a), count

    start = project(jnp.zeros(len(means)))
    a, _, _ = jax.lax.fori_loop(0, STEPS, step, (start, start, jnp.float32(0)))
    return a
