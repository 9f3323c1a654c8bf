"""How far clients' gradients are apart at one model.

Li et al., FedProx, MLSys 2020, https://arxiv.org/abs/1812.06127: B-local dissimilarity
and its bounded variance, with weights p_k = n_k / sum n for E_k.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.training import full_gradient
from pfljax.core.types import Array, ClientData, Params, Task


class Dissimilarity(NamedTuple):
    """f = sum_k p_k F_k over the clients; V = (B^2 - 1) ||grad f||^2."""

    b: Array  # f32[], sqrt(E_k ||grad F_k||^2 / ||grad f||^2), at least 1
    variance: Array  # f32[], V = E_k ||grad F_k - grad f||^2


def dissimilarity(
    task: Task,
    params: Params,
    data: ClientData,
    batch_size: int = 64,
) -> Dissimilarity:
    """B(w) and V(w) at `params` over all clients; jittable.

    `data` has offset and size i32[C]. Gradients are of all of a client's rows,
    `batch_size` at a time, one client after another, and each is made twice, so that
    few are in memory. A client without rows has no weight. At a stationary
    point of f, B is infinite, or NaN where all gradients are zero.
    """
    total_size = jnp.maximum(data.size.sum(), 1)
    share = data.size / total_size

    def gradient(offset: Array, size: Array) -> Params:
        client_data = ClientData(data.examples, offset, size)
        _, grads = full_gradient(task.loss, params, client_data, batch_size)
        return grads

    def add(total: Params, client: tuple[Array, ...]) -> tuple[Params, None]:
        p, *span = client
        total = tree.axpy(p, gradient(*span), total)
        return total, None

    clients = share, data.offset, data.size
    mean, _ = jax.lax.scan(add, tree.zeros(params), clients)

    def squares(total: Array, client: tuple[Array, ...]) -> tuple[Array, None]:
        p, *span = client
        client_gradient = gradient(*span)
        shift = tree.sub(client_gradient, mean)
        size = tree.square_norm(client_gradient)
        distance = tree.square_norm(shift)
        total += p * jnp.stack([size, distance])
        return total, None

    # A second pass, since the distances need the mean of the first.
    (size, variance), _ = jax.lax.scan(squares, jnp.zeros(2), clients)
    b = jnp.sqrt(size / tree.square_norm(mean))
    return Dissimilarity(b=b, variance=variance)
