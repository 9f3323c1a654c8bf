"""The first model of a run: that of another run, and the leaves that stay frozen."""

from dataclasses import dataclass, field
from typing import Any

import jax

from pfljax.core import frozen, leaves, tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import Task
from pfljax.engine.contract import first_change
from pfljax.engine.state import first_params
from pfljax.runs.settings import Experiment
from pfljax.runtime.programs import quickly_compiled
from pfljax.simulate.components import linked_tasks


@dataclass(frozen=True)
class Initial:
    """The model that a run starts from; equal if the bytes are."""

    checksum: int
    arrays: dict[str, Any] = field(compare=False)  # by name, as `export` writes them


def prepare(experiment: Experiment, task: Task, initial: Initial | None) -> Task:
    """The task with its first model, and with frozen leaves as constants.

    Raises:
      ValueError: the first model is another one than that of the task, or a name of
        `freeze` matches no leaf, or nothing would be trained.
    """
    if initial is not None:
        peers = tuple(start_from(peer, initial) for peer in task.peers)
        task = linked_tasks(start_from(task, initial)._replace(peers=peers))[0]
    patterns = leaves.patterns("freeze", experiment.freeze, task.peers or (task,))
    if not freezes(experiment, task):
        return task
    key = jax.random.key(experiment.seed)

    def freeze(task: Task) -> Task:
        chosen = leaves.choose(task, patterns)
        if task.frozen is not None:
            chosen = jax.tree.map(lambda a, b: a or b, chosen, task.frozen)
        if all(jax.tree.leaves(chosen)):
            raise ValueError(
                f"freeze is {' '.join(experiment.freeze)!r}, which leaves nothing of "
                "the model to train; name a part of its leaves, such as body"
            )
        with jax.ensure_compile_time_eval():
            values = quickly_compiled(lambda key: first_params(task, key))(key)
        made = frozen.freeze(task, chosen, values)
        return made._replace(proxy=made.proxy and freeze(made.proxy))

    if not task.peers:
        return freeze(task)
    return linked_tasks(task._replace(peers=tuple(map(freeze, task.peers))))[0]


def freezes(experiment: Experiment, task: Task) -> bool:
    """Whether leaves are frozen, whose first values are constants of the programs."""
    tasks = task.peers or (task,)
    return bool(experiment.freeze) or any(each.frozen is not None for each in tasks)


def start_from(task: Task, initial: Initial) -> Task:
    """The task with this first model; adapters, which it lacks, are drawn.

    Raises:
      ValueError: it is another model than that of the task.
    """
    shapes = shapes_of_model(task.wrapped or task)
    change = first_change(tree.paths(shapes), initial.arrays)
    if change is not None:
        raise ValueError(
            f"initial is another model: {change}; give a run with this run's model, or "
            "a file that `pfljax export` wrote of one"
        )
    lost = initial.arrays.keys() - tree.paths(task.groups).keys()
    if lost:
        raise ValueError(
            f"initial has {', '.join(sorted(lost))}, in whose place this model has "
            "factors; leave initial out, or choose a model with these kernels"
        )
    arrays = [initial.arrays.get(name) for name in tree.paths(task.groups)]
    model = jax.tree.unflatten(jax.tree.structure(task.groups), arrays)
    return task._replace(initial=model)
