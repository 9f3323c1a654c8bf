"""The check that a model is linear in its parameters, for methods that need this."""

import jax
import jax.numpy as jnp

from pfljax.core.types import Array, Params, Task


def is_linear(task: Task) -> bool:
    """Whether the logits are linear in the parameters: one layer, and an empty body.

    It uses shapes alone: JAX cannot transpose a function that is not linear.
    """
    if set(jax.tree.leaves(task.groups)) != {"head"}:
        return False
    params = jax.eval_shape(task.init, jax.random.key(0))
    features = jnp.zeros((1, *task.feature_shape))

    def head(params: Params) -> Array:
        return task.head(params, features)

    try:
        transposed = jax.linear_transpose(head, params)
        jax.eval_shape(transposed, jax.eval_shape(head, params))
    # Different primitives raise different errors.
    except (NotImplementedError, AssertionError, TypeError, ValueError):
        return False
    return True
