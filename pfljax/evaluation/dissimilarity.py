"""The dissimilarity of clients' gradients at a model, and the expected decrease.

Li et al., FedProx, MLSys 2020, https://arxiv.org/abs/1812.06127: B-local dissimilarity
(Definition 3) and its bounded variance, with weights p_k = n_k / sum n for E_k; the
expected decrease of Theorem 4.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.factories import validate
from pfljax.core.ranges import AtLeastOne, NotNegative, Positive
from pfljax.core.training import full_gradient
from pfljax.core.types import Array, ClientData, Params, Task


class Dissimilarity(NamedTuple):
    """f = sum_k p_k F_k over the clients; V = (B^2 - 1) ||grad f||^2."""

    b: Array  # f32[], sqrt(E_k ||grad F_k||^2 / ||grad f||^2), at least 1
    variance: Array  # f32[], V = E_k ||grad F_k - grad f||^2
    gradient: Array  # f32[], ||grad f||
    loss: Array  # f32[], f: the mean over all training examples


class Sums(NamedTuple):
    """Sums over the clients so far."""

    share: Array  # sum of p_k
    mean: Params  # of the gradients, by p_k
    spread: Array  # sum of p_k ||grad F_k - mean||^2
    square: Array  # sum of p_k ||grad F_k||^2
    loss: Array  # sum of p_k F_k


def dissimilarity(
    task: Task,
    params: Params,
    data: ClientData,
    batch_size: int = 64,
) -> Dissimilarity:
    """B(w) and V(w) at `params` over all clients, in one pass; jittable.

    `data` has offset and size i32[C]. The gradient of a client is that of all its
    examples, `batch_size` at a time, and clients follow one another, which needs little
    memory. A client without examples has no weight. At a stationary point of f, B is
    infinite, or NaN if all gradients are zero.
    """
    total_size = jnp.maximum(data.size.sum(), 1)
    share = data.size / total_size

    def add(sums: Sums, client: tuple[Array, ...]) -> tuple[Sums, None]:
        p, offset, size = client
        client_data = ClientData(data.examples, offset, size)
        loss, grads = full_gradient(task.loss, params, client_data, batch_size)
        return _with(sums, p, loss, grads), None

    nothing = jnp.float32(0)
    start = Sums(
        share=nothing,
        mean=tree.zeros(params),
        spread=nothing,
        square=nothing,
        loss=nothing,
    )
    sums, _ = jax.lax.scan(add, start, (share, data.offset, data.size))
    gradient = jnp.sqrt(tree.square_norm(sums.mean))
    return Dissimilarity(
        b=jnp.sqrt(sums.square) / gradient,
        variance=sums.spread,
        gradient=gradient,
        loss=sums.loss,
    )


def _with(sums: Sums, p: Array, loss: Array, grads: Params) -> Sums:
    """The sums with one more client, of weight p."""
    share = sums.share + p
    before = tree.sub(grads, sums.mean)
    step = p / jnp.maximum(share, jnp.finfo(jnp.float32).tiny)
    mean = tree.axpy(step, before, sums.mean)
    # West, 1979: the distances to the mean so far and to the new one. A difference of
    # E||g||^2 and ||E g||^2 would cancel where clients are alike.
    after = tree.sub(grads, mean)
    return Sums(
        share=share,
        mean=mean,
        spread=sums.spread + p * tree.dot(before, after),
        square=sums.square + p * tree.square_norm(grads),
        loss=sums.loss + p * loss,
    )


@validate
def expected_decrease(
    *,
    mu: Positive,
    gamma: NotNegative,
    b: NotNegative,
    smoothness: NotNegative,
    cohort: AtLeastOne,
    concavity: NotNegative = 0.0,
) -> float:
    """rho of Theorem 4: a round is expected to lower f by rho ||grad f(w)||^2 or more.

    It holds for B-dissimilar, L-smooth F_k whose Hessians are at least -`concavity`,
    solved to gamma by a `cohort` of K devices. A rho of at most 0 says nothing.

    Raises:
      ValueError: mu is not above the concavity: h_k would not be convex.
    """
    convexity = mu - concavity
    if convexity <= 0:
        raise ValueError(
            f"mu is {mu}, and concavity is {concavity}; choose mu above it, so that "
            "every h_k is strongly convex"
        )
    reach = b * (1 + gamma)  # of B (1 + gamma) ||grad f||, which bounds a step
    root = math.sqrt(cohort)
    spread = smoothness * reach**2 / (convexity**2 * cohort)
    return (
        1 / mu
        - gamma * b / mu
        - math.sqrt(2) * reach / (convexity * root)
        - smoothness * reach / (convexity * mu)
        - smoothness * reach**2 / (2 * convexity**2)
        - spread * (2 * math.sqrt(2 * cohort) + 2)
    )
