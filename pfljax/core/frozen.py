"""Frozen leaves, which are constants of a model and no parameters of it.

A method never sees them. So they have no gradient, no optimizer state and no place in
messages, uploads and clients' states, whatever the method is. `Task.complete` adds them
to a model that is exported.
"""

from typing import Any

import jax

from pfljax.core import tree
from pfljax.core.server_model import map_argument
from pfljax.core.types import Params, Task, same

TAKE_PARAMETERS = ("loss", "logits", "features", "predict", "head")


def freeze(task: Task, chosen: Any, values: Params) -> Task:
    """The task, whose leaves have these values where `chosen` is True.

    Args:
      task: the task of the whole model.
      chosen: True or False at every leaf, shaped as `task.groups`.
      values: a whole model, of which the chosen leaves are used.
    """
    frozen, _ = tree.split(jax.device_get(values), chosen)

    def join(params: Params) -> Params:
        return tree.merge(params, frozen)

    def complete(params: Params) -> Params:
        return task.complete(join(params))

    def without(a: Any) -> Any:
        # Leaves that are drawn are None in `task.initial`.
        return jax.tree.map(lambda is_frozen, x: None if is_frozen else x, chosen, a)

    functions = {
        name: map_argument(getattr(task, name), 0, join) for name in TAKE_PARAMETERS
    }
    return task._replace(
        init=lambda key: without(task.init(key)),
        initial=task.initial and without(task.initial),
        groups=without(task.groups),
        modules=without(task.modules),
        frozen=None,
        complete=complete,
        # Units would have parameters on one side alone.
        units=None,
        resized=None,
        **functions,
    )


def complete(task: Task, record: Any, stacked: bool = False) -> Any:
    """The record, in which every model of the task is complete.

    Its models may be `stacked`, with a leading axis.
    """
    if task.complete is same:
        return record
    form = jax.tree.structure(task.groups)
    add = jax.vmap(task.complete) if stacked else task.complete

    def is_model(part: Any) -> bool:
        return jax.tree.structure(part) == form

    def on_part(part: Any) -> Any:
        return add(part) if is_model(part) else part

    return jax.tree.map(on_part, record, is_leaf=is_model)
