"""Running statistics of batch normalisation, which are leaves of a model's parameters.

A statistic is stored with the parameters of its layer, under the key `STATISTICS`. So a
method that sends, averages or mixes parameters does the same with statistics, without
extra code. Only their steps differ: a model in training mode has old - new as their
gradient (`following`), and the optimizer takes it at the rate 1 (`beside`), which ends
at the new value. With sgd(0.1), if a batch moves the mean from 10 to 9.8:

    params    {"scale": 2.0,  "batch_stats": {"mean": 10.0}}
    gradient  {"scale": 0.5,  "batch_stats": {"mean": 0.2}}
    stepped   {"scale": 1.95, "batch_stats": {"mean": 9.8}}

Lengths and inner products (`core.tree`) leave statistics out. Methods that do not
average them use `core.local_statistics`.

Running averages: Ioffe and Szegedy, ICML 2015, https://arxiv.org/abs/1502.03167.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

Tree = Any
STATISTICS = "batch_stats"  # Flax Linen's name of the collection


@jax.custom_vjp
def following(
    outputs: Tree,
    old: Tree,
    new: Tree,
) -> Tree:
    """`outputs`, such as logits; the gradient with respect to `old` is old - new.

    Statistics step by their gradient g at the rate 1, so they end at the new value:

        old - 1 g = old - (old - new) = new

    The chain rule would multiply g by the gradient of the loss in the outputs.
    `_backward` leaves that out, so g is the same for a loss, five times a loss, or two
    losses. The chain rule still holds before `old`: if w is stepped and old is a
    mixture (1 - a) w + a v, then w takes the share (1 - a) of the change.
    (`tests/core/test_statistics.py`: test_following_gives_old_minus_new...)
    """
    return outputs


def _forward(
    outputs: Tree,
    old: Tree,
    new: Tree,
) -> tuple[Tree, Any]:
    """The outputs, and the residuals for `_backward`."""
    return outputs, (old, new)


def _backward(statistics: Any, cotangent: Tree) -> tuple[Tree, Tree, Tree]:
    """The gradients with respect to outputs, old and new."""
    old, new = statistics

    def change(old_leaf: jax.Array, new_leaf: jax.Array) -> jax.Array:
        # Second derivatives, as in Per-FedAvg, see a constant.
        return jax.lax.stop_gradient(old_leaf - new_leaf)

    nothing = jax.tree.map(jnp.zeros_like, new)
    return cotangent, jax.tree.map(change, old, new), nothing


following.defvjp(_forward, _backward)


def beside(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimizer for parameters; statistics step by their gradient at the rate 1."""
    parts: dict[Any, Any] = {
        "parameters": optimizer,
        # The gradient is old - new: a step at the rate 1 ends at the new value.
        "statistics": optax.scale(-1.0),
    }
    return optax.partition(parts, _labels)


def _labels(params: Tree) -> Tree:
    """The part of `beside` that steps each leaf."""
    return by_kind(
        params,
        parameter=lambda leaf: "parameters",
        statistic=lambda leaf: "statistics",
    )


def mask(a: Tree) -> Tree:
    """True at every running statistic of `a`: a choice for `tree.split`."""
    return by_kind(
        a,
        parameter=lambda leaf: False,
        statistic=lambda leaf: True,
    )


def has_any(a: Tree) -> bool:
    """Whether a leaf of `a` is a running statistic."""
    return any(jax.tree.leaves(mask(a)))


def scale(a: Tree, factor: Any) -> Tree:
    """factor * a for parameters; statistics stay, as their steps have the rate 1."""
    return by_kind(a, parameter=lambda leaf: factor * leaf)


def without(a: Tree) -> Tree:
    """`a` with zeros in place of statistics."""
    return by_kind(a, statistic=jnp.zeros_like)


def _identity(leaf: Any) -> Any:
    return leaf


def by_kind(
    a: Tree,
    *,
    parameter: Callable[[Any], Any] = _identity,
    statistic: Callable[[Any], Any] = _identity,
) -> Tree:
    """`a` with `parameter` of each parameter and `statistic` of each statistic."""

    def on_leaf(path: Any, leaf: Any) -> Any:
        return statistic(leaf) if is_statistic(path) else parameter(leaf)

    return jax.tree_util.tree_map_with_path(on_leaf, a)


def is_statistic(path: Any) -> bool:
    """Whether the leaf at a path of JAX's keys is a running statistic."""
    # Paths through records also have keys that are not of a dict.
    return any(getattr(key, "key", None) == STATISTICS for key in path)
