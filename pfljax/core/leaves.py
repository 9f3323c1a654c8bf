"""Leaves of a model by name: what `--freeze` freezes and the method `partial` keeps.

A name is that of a kind of leaves, of a module or leaf, or a pattern (`fnmatch`):

    body, head        the two parts of the model (`Task.groups`)
    norm              normalisation layers, with their running statistics
    lora              adapters, of which lora_a and lora_b are the factors
    embedding         all leaves of this name, or in a module of this name
    body/*, */bias    whole paths; "*" also stands for slashes

Normalisation layers are found by their structure: a module whose leaves are all
vectors, and either a scale or running statistics are among them.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from glob import escape
from typing import Any

import jax

from pfljax.core import statistics, tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.local_statistics import name_in_model
from pfljax.core.types import Task

KINDS = ("body", "head", "norm", "lora")
FACTORS = ("lora_a", "lora_b")  # the trees of adapters, beside the parts of a model


def patterns(option: str, names: Iterable[str], tasks: Iterable[Task]) -> list[str]:
    """The patterns of whole paths that the names stand for in these models.

    Raises:
      ValueError: a name matches no leaf of these models; `option` is where it stands.
    """
    models = list(tasks)
    paths = dict.fromkeys(path for task in models for path in tree.paths(task.groups))
    found = []
    for name in names:
        each = _expand(name, models)
        if not any(matches(path, each) for path in paths):
            raise ValueError(
                f"{option} has {name!r}, which matches no leaf of the model; its "
                f"leaves are {', '.join(paths)}"
            )
        found += each
    return found


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether a leaf's path, such as "body/Dense_0/kernel", has one of the patterns."""
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def choose(task: Task, patterns: Sequence[str]) -> Any:
    """True at every leaf that has one of the patterns: a choice for `tree.split`."""

    def on_leaf(path: Any, _: str) -> bool:
        return matches(name_in_model(path), patterns)

    return jax.tree_util.tree_map_with_path(on_leaf, task.groups)


def of_kind(task: Task, kind: str) -> Any:
    """True at every leaf of a kind of `KINDS`."""
    if kind == "lora":
        return choose(task, [f"{name}/*" for name in FACTORS])
    if kind != "norm":
        return tree.matches(task.groups, kind)
    norms = _norms(task)
    return jax.tree.map(norms.__contains__, task.modules)


def _expand(name: str, tasks: Iterable[Task]) -> list[str]:
    """The patterns of whole paths that one name stands for."""
    if name in KINDS:
        chosen = [tree.paths(of_kind(task, name)) for task in tasks]
        return [escape(path) for paths in chosen for path in paths if paths[path]]
    if "/" in name:
        return [name]
    return [name, f"{name}/*", f"*/{name}", f"*/{name}/*"]


def _norms(task: Task) -> set[int]:
    """The modules that normalise, by the numbers of `Task.modules`."""
    vectors, marked = set(task_modules := jax.tree.leaves(task.modules)), set()
    model = jax.tree_util.tree_leaves_with_path(shapes_of_model(task))
    for module, (path, leaf) in zip(task_modules, model, strict=True):
        if len(leaf.shape) != 1:
            vectors.discard(module)
        if statistics.is_statistic(path) or path[-1].key == "scale":
            marked.add(module)
    return vectors & marked
