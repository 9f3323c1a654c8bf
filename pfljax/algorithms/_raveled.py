"""A model as one vector of its parameters, and one of its running statistics.

Of a model with the leaves w f32[2, 3], b f32[3] and a mean f32[4] of batches:

    {"parameters": f32[9], "batch_stats": f32[4]}

Arithmetic and rows of clients are one kernel a vector, where they are one a leaf of a
model: most of what compiles, for a method with several numbers a parameter. So clients
may keep vectors. Messages and uploads are of leaves, on which channels act.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.flatten_util import ravel_pytree

from pfljax.core import statistics, tree
from pfljax.core.types import Array, Batch, Key, Params, Task

PARAMETERS = "parameters"

Raveled = dict[str, Any]  # None in the place of a vector without numbers


def ravel(params: Params) -> Raveled:
    """The vectors of these leaves."""
    running, parameters = tree.split(params, statistics.mask(params))
    # Statistics are known by their key here, too.
    return {
        PARAMETERS: _vector(parameters),
        statistics.STATISTICS: _vector(running),
    }


def unraveling(task: Task) -> Callable[[Raveled], Params]:
    """The function that gives the leaves of the task's model back.

    None in the place of a vector is None in the place of its leaves; () stays ().
    """

    def unravel(raveled: Raveled) -> Params:
        if not raveled:  # (), the model of a client that has none
            return raveled
        # Of values, for shapes do not ravel; a program has none of these zeros.
        like = tree.zeros(jax.eval_shape(task.init, jax.random.key(0)))
        running, parameters = tree.split(like, statistics.mask(like))
        return tree.merge(
            _leaves(raveled[statistics.STATISTICS], running),
            _leaves(raveled[PARAMETERS], parameters),
        )

    return unravel


def ravel_task(task: Task) -> Task:
    """The task with a loss and logits of vectors; all else is of leaves, as before."""
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
