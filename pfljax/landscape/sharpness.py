"""How much a client's mean loss rises in a ball around a model, as SAM sees it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from pfljax.core import tree
from pfljax.core.types import Array, ClientData, Params, Task
from pfljax.landscape.objective import Objective, measure
from pfljax.landscape.stacked import check_whole

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
    steps: int = 1,
    adaptive: bool = False,
    batch_size: int = 256,
) -> Sharpness:
    """L(w + e) - L(w) with e found by gradient ascent from zero in a ball.

    One step is SAM's e = rho g / |g| (Foret et al., ICLR 2021,
    https://arxiv.org/abs/2010.01412, eq. 2). More steps are projected gradient ascent,
    each as long as the radius of the ball. The highest point reached counts, so that
    more steps never give less.

    Args:
      task: the model.
      params: one model, or stacked over C clients.
      data: the examples of one client, or of C clients.
      rho: radius of the ball. SAM trained with 0.05, ASAM with 0.5 (CIFAR-10).
      steps: steps of the ascent, 1 or more.
      adaptive: use the ball of ASAM, |e / t| <= rho, in which one step is
        e = rho t^2 g / |t g|. As in its code, t = |w| + 0.01, and 1 for vectors
        (biases). Apart from the 0.01, the rise is the same for weights that are
        rescaled without changing the model's function. Kwon et al., ICML 2021,
        https://arxiv.org/abs/2102.11600.
      batch_size: examples at a time; the result does not depend on it.

    Raises:
      ValueError: `rho` or `steps` is not positive, or the shapes do not agree.
    """
    check_whole("steps", steps, 1)
    if np.ndim(rho) or not 0 < rho < np.inf:
        raise ValueError(f"rho is {rho}, expected one positive radius; e.g. 0.05")
    # The radius is an argument of the program: another one compiles nothing.
    rise, loss = measure(
        _sharpness,
        task,
        params,
        data,
        np.float32(rho),
        (steps, adaptive),
        batch_size,
        draws=False,
    )
    return Sharpness(rise=rise, loss=loss)


def _sharpness(
    objective: Objective,
    rho: Array,
    steps: int,
    adaptive: bool,
) -> tuple[Array, Array]:
    weights = objective.weights
    unit = jnp.ones_like(weights)
    if adaptive:
        unit = _adaptive_unit(objective.unravel(weights))
    return ascent(objective.value_and_grad, weights, unit, rho, steps)


def _adaptive_unit(params: Params) -> Array:
    """ASAM's t of every parameter, f32[D]."""

    def unit(leaf: Array) -> Array:
        # Vectors are biases and the like: ASAM's code leaves them as SAM does.
        if leaf.ndim < 2:
            return jnp.ones_like(leaf)
        return jnp.abs(leaf) + ETA

    flat, _ = ravel_pytree(jax.tree.map(unit, tree.parameters(params)))
    return flat


def ascent(
    value_and_grad: Callable[[Array], tuple[Array, Array]],
    weights: Array,
    unit: Array,
    rho: Any,
    steps: int,
) -> tuple[Array, Array]:
    """(rise, loss) after `steps` steps in the ball |e / unit| <= rho at `weights`."""
    loss, gradient = value_and_grad(weights)

    def step(carry: tuple, _: None) -> tuple:
        # `scaled` is e / unit, in which the ball is round.
        scaled, gradient, highest = carry
        scaled += rho * _direction(unit * gradient)
        norm = jnp.maximum(jnp.linalg.norm(scaled), 1e-30)
        scaled *= jnp.minimum(1, rho / norm)
        value, gradient = value_and_grad(weights + unit * scaled)
        return (scaled, gradient, jnp.maximum(highest, value)), None

    # The start is not among the points reached, so a rise may be negative.
    lowest = -jnp.inf * jnp.ones_like(loss)
    start = (jnp.zeros_like(weights), gradient, lowest)
    (_, _, highest), _ = jax.lax.scan(step, start, length=steps)
    return highest - loss, loss


def _direction(v: Array) -> Array:
    """v / |v|; zero at zero."""
    return v / jnp.maximum(jnp.linalg.norm(v), 1e-30)
