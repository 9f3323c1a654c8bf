"""Running statistics of batch normalisation, which are leaves of a model's parameters.

They are recognised by their path: one of its keys is `STATISTICS`. A model in training
mode makes new ones of each batch. Its gradient with respect to a statistic is
old - new, and local training steps statistics at the rate 1, outside of the optimizer:
so they take their new values in every method that differentiates the model's loss, and
are sent and averaged as parameters are. Lengths and inner products (`core.tree`) leave
them out. A method that keeps or drops them says so by `core.local_statistics`.

Running averages: Ioffe and Szegedy, ICML 2015, https://arxiv.org/abs/1502.03167.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

Tree = Any
STATISTICS = "batch_stats"  # Flax Linen's name of the collection


def is_statistic(path: Any) -> bool:
    """Whether the leaf at a path of JAX's keys is a running statistic."""
    return any(getattr(key, "key", None) == STATISTICS for key in path)


def chosen(a: Tree) -> Tree:
    """True at every running statistic of `a`: a choice for `tree.split`."""

    def at(path: Any, leaf: Any) -> bool:
        return is_statistic(path)

    return jax.tree_util.tree_map_with_path(at, a)


def scale(a: Tree, factor: Any) -> Tree:
    """factor * a, but statistics as they are: their steps have the rate 1."""

    def scaled(path: Any, leaf: Any) -> Any:
        return leaf if is_statistic(path) else factor * leaf

    return jax.tree_util.tree_map_with_path(scaled, a)


def without(a: Tree) -> Tree:
    """`a` with zeros in the place of statistics."""

    def parameter(path: Any, leaf: Any) -> Any:
        return jnp.zeros_like(leaf) if is_statistic(path) else leaf

    return jax.tree_util.tree_map_with_path(parameter, a)


def beside(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimizer of parameters; statistics step by their gradient, at the rate 1."""
    parts: dict[Any, Any] = {
        "parameters": optimizer,
        # The gradient is old - new: this step of rate 1 ends at the new value.
        "statistics": optax.scale(-1.0),
    }
    return optax.partition(parts, _labels)


@jax.custom_vjp
def following(
    outputs: Tree,
    old: Tree,
    new: Tree,
) -> Tree:
    """`outputs`, such as logits; the gradient with respect to `old` is old - new.

    So it is whatever is made of the outputs, and however often: only a factor between
    parameters and `old`, as of a mixture of two models, enters by the chain rule.
    """
    return outputs


def _following(
    outputs: Tree,
    old: Tree,
    new: Tree,
) -> tuple[Tree, Any]:
    return outputs, (old, new)


def _slope(statistics: Any, cotangent: Tree) -> tuple[Tree, Tree, Tree]:
    old, new = statistics

    def change(old_leaf: jax.Array, new_leaf: jax.Array) -> jax.Array:
        # A second derivative, as of Per-FedAvg, sees a constant.
        return jax.lax.stop_gradient(old_leaf - new_leaf)

    nothing = jax.tree.map(jnp.zeros_like, new)
    return cotangent, jax.tree.map(change, old, new), nothing


following.defvjp(_following, _slope)


def _labels(params: Tree) -> Tree:
    def label(statistic: bool) -> str:
        return "statistics" if statistic else "parameters"

    return jax.tree.map(label, chosen(params))
