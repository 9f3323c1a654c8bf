"""Server optimizers by their names in the field, for `pfljax.core.server_step`.

FedAvgM. Hsu, Qi, Brown, 2019, https://arxiv.org/abs/1909.06335. SGD with momentum.
FedAdagrad, FedAdam, FedYogi. Reddi et al., ICLR 2021, https://arxiv.org/abs/2003.00295
(Algorithm 2). With D the mean change of the clients, and v = tau^2 at first:

    m <- b1 m + (1 - b1) D;   w <- w + learning_rate m / (sqrt(v) + tau)
    FedAdagrad  v <- v + D^2
    FedAdam     v <- b2 v + (1 - b2) D^2
    FedYogi     v <- v - (1 - b2) D^2 sign(v - D^2)

Optax's `adam` and `yogi` differ: they correct the bias of m and v.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.core import tree
from pfljax.core.components import Component
from pfljax.core.factories import component
from pfljax.core.ranges import BelowOne, Positive
from pfljax.core.types import Array

# (v, D^2) -> v
Rule = Callable[[Array, Array], Array]


class Moments(NamedTuple):
    """The means of D and of its square."""

    m: Any
    v: Any


@component
def fedavgm(
    *, learning_rate: Positive = 1.0, momentum: BelowOne = 0.9
) -> optax.GradientTransformation:
    """FedAvgM: SGD with momentum; momentum 0 at learning rate 1 takes the mean."""
    return optax.sgd(learning_rate, momentum)


@component
def fedadagrad(
    *, learning_rate: Positive = 0.1, b1: BelowOne = 0.0, tau: Positive = 1e-3
) -> optax.GradientTransformation:
    """FedAdagrad; with a large `tau` it is SGD."""
    return _adaptive(lambda v, square: v + square, learning_rate, b1, tau)


@component
def fedadam(
    *,
    learning_rate: Positive = 0.1,
    b1: BelowOne = 0.9,
    b2: BelowOne = 0.99,
    tau: Positive = 1e-3,
) -> optax.GradientTransformation:
    """FedAdam; with a large `tau` it is SGD with momentum."""

    def rule(v: Array, square: Array) -> Array:
        return b2 * v + (1 - b2) * square

    return _adaptive(rule, learning_rate, b1, tau)


@component
def fedyogi(
    *,
    learning_rate: Positive = 0.1,
    b1: BelowOne = 0.9,
    b2: BelowOne = 0.99,
    tau: Positive = 1e-3,
) -> optax.GradientTransformation:
    """FedYogi; the second moment v falls by at most (1 - b2) D^2."""

    def rule(v: Array, square: Array) -> Array:
        return v - (1 - b2) * square * jnp.sign(v - square)

    return _adaptive(rule, learning_rate, b1, tau)


SERVER_OPTIMIZERS: dict[str, Callable[..., Component]] = {
    "fedavgm": fedavgm,
    "fedadagrad": fedadagrad,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
}


def _adaptive(
    rule: Rule, learning_rate: float, b1: float, tau: float
) -> optax.GradientTransformation:
    """Algorithm 2 with this rule for v, of the gradient -D."""

    def init(params: Any) -> Moments:
        v = jax.tree.map(lambda leaf: jnp.full_like(leaf, tau**2), params)
        return Moments(tree.zeros(params), v)

    def mean(m: Array, g: Array) -> Array:
        return b1 * m + (1 - b1) * g

    def on_squares(v: Array, g: Array) -> Array:
        return rule(v, g * g)

    def step(m: Array, v: Array) -> Array:
        return -learning_rate * m / (jnp.sqrt(v) + tau)

    # Optax uses these names of arguments; `updates` has the gradient.
    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        m = jax.tree.map(mean, state.m, updates)
        v = jax.tree.map(on_squares, state.v, updates)
        return jax.tree.map(step, m, v), Moments(m, v)

    return optax.GradientTransformation(init, update)
