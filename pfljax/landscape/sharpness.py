"""How much a client's mean loss rises in a ball around a model, as SAM sees it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from pfljax.core import tree
from pfljax.core.types import Array, ClientData, Params, Task
from pfljax.landscape.objective import Objective, measure

ETA = 0.01  # of ASAM: keeps a weight of zero movable


class Sharpness(NamedTuple):
    """The rise of the loss of one client, f32[], or of C clients, f32[C]."""

    rise: np.ndarray  # f32[...], loss at the top minus loss at the model
    loss: np.ndarray  # f32[...], loss at the model


def sharpness(
    task: Task,
    params: Params,
    data: ClientData,
    *,
    rho: float,
    adaptive: bool = False,
    batch_size: int = 256,
) -> Sharpness:
    """L(w + e) - L(w) with SAM's step of gradient ascent in a ball, e = rho g / |g|.

    Foret et al., ICLR 2021, https://arxiv.org/abs/2010.01412 (eq. 2).

    Args:
      task: the model.
      params: one model, or stacked over C clients.
      data: the examples of one client, or of C clients.
      rho: radius of the ball. SAM trained with 0.05, ASAM with 0.5 (CIFAR-10).
      adaptive: use the ball of ASAM, |e / t| <= rho, in which the step is
        e = rho t^2 g / |t g|. As in its code, t = |w| + 0.01, and 1 for vectors
        (biases). Apart from the 0.01, the rise is the same for weights that are
        rescaled without changing the model's function. Kwon et al., ICML 2021,
        https://arxiv.org/abs/2102.11600.
      batch_size: examples at a time; the result does not depend on it.

    Raises:
      ValueError: `rho` is not positive, or the shapes do not agree.
    """
    if np.ndim(rho) or not 0 < rho < np.inf:
        raise ValueError(f"rho is {rho}, expected one positive radius; e.g. 0.05")
    # The radius is an argument of the program: another one compiles nothing.
    rise, loss = measure(
        _sharpness,
        task,
        params,
        data,
        np.float32(rho),
        (adaptive,),
        batch_size,
        draws=False,
    )
    return Sharpness(rise=rise, loss=loss)


def _sharpness(
    objective: Objective,
    rho: Array,
    adaptive: bool,
) -> tuple[Array, Array]:
    weights = objective.weights
    unit = jnp.ones_like(weights)
    if adaptive:
        unit = _adaptive_unit(objective.unravel(weights))
    loss, gradient = objective.value_and_grad(weights)
    # e / unit, in which the ball is round; zero where the gradient is.
    scaled = unit * gradient
    scaled = rho * (scaled / jnp.maximum(jnp.linalg.norm(scaled), 1e-30))
    # Rounding may have left the ball.
    scaled *= jnp.minimum(1, rho / jnp.maximum(jnp.linalg.norm(scaled), 1e-30))
    top, _ = objective.value_and_grad(weights + unit * scaled)
    return top - loss, loss


def _adaptive_unit(params: Params) -> Array:
    """ASAM's t of every parameter, f32[D]."""

    def unit(leaf: Array) -> Array:
        # Vectors are biases and the like: ASAM's code leaves them as SAM does.
        if leaf.ndim < 2:
            return jnp.ones_like(leaf)
        return jnp.abs(leaf) + ETA

    flat, _ = ravel_pytree(jax.tree.map(unit, tree.parameters(params)))
    return flat
