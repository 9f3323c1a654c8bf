"""A model as one vector of its parameters, and one of its running statistics.

For a model with the leaves w f32[2, 3], b f32[3] and a batch mean f32[4]:

    {"parameters": f32[9], "batch_stats": f32[4]}

Arithmetic, gather and scatter take one kernel for each vector instead of one for each
leaf. Those kernels are most of the compile time of a method that keeps several numbers
for each parameter, so such methods may keep clients as vectors. Messages and uploads
have leaves, on which channels act.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.flatten_util import ravel_pytree

from pfljax.core import statistics, tree
from pfljax.core.types import Array, Batch, Key, Params, Task

PARAMETERS = "parameters"

Raveled = dict[str, Any]  # None in place of an empty vector


def ravel(params: Params) -> Raveled:
    """The vectors of these leaves."""
    running, parameters = tree.split(params, statistics.mask(params))
    # Statistics are recognised by their key here, too.
    return {
        PARAMETERS: _vector(parameters),
        statistics.STATISTICS: _vector(running),
    }


def unraveling(task: Task) -> Callable[[Raveled], Params]:
    """The function that restores the leaves of the task's model.

    None for a vector gives None for its leaves; () stays ().
    """

    def unravel(raveled: Raveled) -> Params:
        if not raveled:  # the () of a client without a model
            return raveled
        # With values, because shapes do not ravel; no program keeps these zeros.
        like = tree.zeros(jax.eval_shape(task.init, jax.random.key(0)))
        running, parameters = tree.split(like, statistics.mask(like))
        return tree.merge(
            _leaves(raveled[statistics.STATISTICS], running),
            _leaves(raveled[PARAMETERS], parameters),
        )

    return unravel


def ravel_task(task: Task) -> Task:
    """The task with a loss and logits of vectors; all else takes leaves, as before."""
    unravel = unraveling(task)

    def loss(params: Raveled, batch: Batch, key: Key | None) -> Array:
        return task.loss(unravel(params), batch, key)

    def logits(params: Raveled, batch: Batch, key: Key | None) -> Array:
        return task.logits(unravel(params), batch, key)

    return task._replace(loss=loss, logits=logits)


def _vector(leaves: Params) -> Any:
    return ravel_pytree(leaves)[0] if jax.tree.leaves(leaves) else None


def _leaves(vector: Any, like: Params) -> Params:
    if vector is None:
        return jax.tree.map(lambda leaf: None, like)
    _, unravel = ravel_pytree(like)
    return unravel(vector)
