"""Builds a method for a model."""

from collections.abc import Mapping
from typing import Any

import jax

from pfljax import algorithms
from pfljax.core import leaves
from pfljax.core.components import is_own
from pfljax.core.linear import is_linear
from pfljax.core.requirements import require_a
from pfljax.core.types import Algorithm, Local, Task

# Models that have a part.
DIVIDED = (
    "one with both, such as model mlp, or give your module `body: nn.Module` and "
    "`head: nn.Module`, and return `self.head(self.body(x))`"
)
SUCH = {
    "body": DIVIDED,
    "head": DIVIDED,
    "norm": "one with normalisation, such as model resnet9:norm=batch_running",
    "lora": "one with adapters, such as model lora:model=mlp",
}


def build(name: str, task: Task, local: Local, options: Mapping[str, Any]) -> Algorithm:
    """The method of this name for a model.

    Raises:
      ValueError: an option is wrong, or the model lacks a part that the method needs.
    """
    algorithm = algorithms.method(name)(task, local, **options)
    if is_own(name):
        expected = "an Algorithm of pfljax.core.types"
        require_a(f"what {name} returned", algorithm, Algorithm, expected)
    _check_parts(name, algorithm, task)
    return algorithm


def _check_parts(name: str, algorithm: Algorithm, task: Task) -> None:
    """Refuses a model without a part, or of another form, than the method needs."""
    missing = [
        part
        for part in algorithm.parts
        if not any(jax.tree.leaves(leaves.of_kind(task, part)))
    ]
    if missing:
        raise ValueError(
            f"{name} treats parts of a model differently, but the model has no "
            f"parameters in its {' and '.join(missing)}; choose {SUCH[missing[0]]}"
        )
    if algorithm.classes and task.kind != "classes":
        raise ValueError(
            f"{name} needs classes, but the task is {task.kind!r}; choose another "
            "method, such as fedavg, fedper or ditto"
        )
    if algorithm.linear and not is_linear(task):
        raise ValueError(
            f"{name} is a convex solver, but the model is a network: its logits are "
            "not linear in its parameters; choose model logistic"
        )
