"""Frozen leaves, which keep their first values in every model of a run.

A leaf is frozen if its path in the model, such as "body/Dense_0/kernel", matches one of
the patterns (`core.leaves`). It has no gradient (`stop`), no step of the optimizer,
such as a weight decay (`hold`), and at the server it is no mean of equal numbers, which
would differ in the last bit (`keep`). It is still sent.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import optax

from pfljax.core import leaves
from pfljax.core.local_statistics import name_in_model
from pfljax.core.server_model import map_argument
from pfljax.core.types import Algorithm, Cohort, Task

Patterns = Sequence[str]


def is_frozen(path: Any, patterns: Patterns) -> bool:
    """Whether the leaf at a path of JAX's keys, in a model or a record, is frozen."""
    return leaves.matches(name_in_model(path), patterns)


def stop(task: Task, patterns: Patterns) -> Task:
    """The task, whose outputs have no gradient with respect to frozen leaves."""

    def stop_leaf(path: Any, leaf: Any) -> Any:
        return jax.lax.stop_gradient(leaf) if is_frozen(path, patterns) else leaf

    def stop_leaves(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(stop_leaf, params)

    names = "loss", "logits", "features", "head"
    functions = {
        name: map_argument(getattr(task, name), 0, stop_leaves) for name in names
    }
    return task._replace(**functions)


def hold(
    optimizer: Callable[[Any], optax.GradientTransformation], patterns: Patterns
) -> Callable[[Any], optax.GradientTransformation]:
    """The optimizer, a function of the rate, without a step of frozen leaves."""

    def label(path: Any, leaf: Any) -> str:
        return "frozen" if is_frozen(path, patterns) else "free"

    def labels(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(label, params)

    def build(rate: Any) -> optax.GradientTransformation:
        parts: dict[Any, Any] = {"free": optimizer(rate), "frozen": optax.set_to_zero()}
        return optax.partition(parts, labels)

    return build


def keep(method: Algorithm, patterns: Patterns) -> Algorithm:
    """The method, whose server keeps frozen leaves bit for bit."""

    def choose(path: Any, new: Any, old: Any) -> Any:
        return old if is_frozen(path, patterns) else new

    def aggregate(server: Any, uploads: Any, cohort: Cohort) -> Any:
        new = method.aggregate(server, uploads, cohort)
        return jax.tree_util.tree_map_with_path(choose, new, server)

    then = method.then
    return method._replace(aggregate=aggregate, then=then and keep(then, patterns))
