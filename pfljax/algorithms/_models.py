"""Several models: how they are drawn, how many there may be, and their sizes."""

from typing import Any

import jax

from pfljax.core import tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.requirements import require
from pfljax.core.types import Array, Key, Params, Task


def draw_models(task: Task, params: Params, count: int, key: Key) -> Params:
    """`count` models, leaves [count, ...]: the first is `params`, the others differ.

    Equal models would stay equal. All methods start from the same `params`.
    """
    drawn = jax.vmap(task.init)(jax.random.split(key, count))
    return jax.tree.map(_set_first, drawn, params)


def _set_first(models: Array, w: Array) -> Array:
    return models.at[0].set(w)


def require_clients(option: str, count: int, num_clients: Any) -> None:
    """Raises a ValueError if the option, such as a number of models, exceeds it."""
    enough = num_clients is None or count <= num_clients
    require(option, count, enough, f"at most {num_clients}, the number of clients")


def size_ratio(task: Task, other: Task) -> float:
    """The size of a task's model as a share of that of another's."""
    mine, others = (tree.nbytes(shapes_of_model(each)) for each in (task, other))
    return mine / others
