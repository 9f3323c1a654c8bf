"""What the forms of SuPerFed's code have in common.

Its proximal terms are un-squared. Its server takes over the weights that clients send
and not their biases; the study's networks have none but those of batch normalisation,
so every round begins with biases of 0 there.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.types import Algorithm, Array, Params


def pulled(anchor: Params, mu: Any) -> Callable[[Params], Array]:
    """params -> mu times the sum over tensors of ||p - anchor||.

    The code leaves out biases for FedProx, Ditto and pFedMe; here they are in it.
    """
    return lambda params: mu * norms(tree.sub(params, anchor))


def norms(a: Any) -> Array:
    """Sum over leaves of the L2 norm, f32[]; its gradient at zero is zero, not NaN."""

    def norm(leaf: Array) -> Array:
        square = jnp.sum(leaf * leaf)
        positive = square > 0
        return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)

    return jnp.sum(jnp.stack([jnp.float32(0), *map(norm, jax.tree.leaves(a))]))


def biases_of(old: Params, new: Params) -> Params:
    """The parameters `new`, with the biases of `old`."""

    def chosen(path: Any, new_leaf: Any, old_leaf: Any) -> Any:
        return old_leaf if path[-1].key == "bias" else new_leaf

    return jax.tree_util.tree_map_with_path(chosen, new, old)


def keep_biases(method: Algorithm) -> Algorithm:
    """The method, whose server's state is parameters and keeps its own biases."""

    def aggregate(w, uploads, cohort):
        return biases_of(w, method.aggregate(w, uploads, cohort))

    return method._replace(aggregate=aggregate)
