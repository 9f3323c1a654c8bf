"""Whether a model is linear in its parameters, for methods that need one."""

import jax
import jax.numpy as jnp

from pfljax.core.types import Array, Params, Task


def is_linear(task: Task) -> bool:
    """Whether the logits are linear in the parameters: a body without any, one layer.

    By shapes alone: of what is not linear JAX knows no transpose.
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
    # The rules of its primitives differ in what they raise.
    except (NotImplementedError, AssertionError, TypeError, ValueError):
        return False
    return True
