"""Two models of one task whose logits are added, with a gate for each class.

    logits = shared logits + max(gate, 0) * private logits

Corinzia, Beuret, Buhmann, 2019, https://arxiv.org/abs/1906.06268, join every layer.
"""

from typing import Any, NamedTuple

import jax

from pfljax.algorithms.bayesian._gaussian import Gaussian
from pfljax.core.losses import data_loss, logits_of_both
from pfljax.core.types import Array, Batch, Key, Params, Task


class Lateral(NamedTuple):
    """Two paths to the logits; if `private` has no leaves, the shared one alone."""

    shared: Params
    private: Params
    gate: Any = None  # f32[K]; None if it is kept outside the model


def paths(shared: Gaussian, private: Gaussian) -> Gaussian:
    """The Gaussian over both paths."""
    mean = Lateral(shared.mean, private.mean)
    return Gaussian(mean, Lateral(shared.spread, private.spread))


def split_paths(both: Gaussian) -> tuple[Gaussian, Gaussian]:
    """(shared, private): the two Gaussians that `paths` has joined."""
    mean, spread = both
    return (
        Gaussian(mean.shared, spread.shared),
        Gaussian(mean.private, spread.private),
    )


def logits(
    task: Task,
    model: Any,
    batch: Batch,
    key: Key | None = None,
) -> Array:
    """Logits [B, K] of both paths, or of a plain model of the task."""
    if not isinstance(model, Lateral):
        return task.logits(model, batch, key)
    if not _has_private(model):
        return task.logits(model.shared, batch, key)
    shared, private = logits_of_both(task, model.shared, model.private, batch, key)
    return shared + jax.nn.relu(model.gate) * private


def loss(
    task: Task,
    model: Lateral,
    batch: Batch,
    key: Key,
) -> Array:
    """The loss of both paths' outputs, or the task's loss of the shared one alone."""
    if not _has_private(model):
        return task.loss(model.shared, batch, key)
    return data_loss(task, logits(task, model, batch, key), batch)


def _has_private(model: Lateral) -> bool:
    return bool(jax.tree.leaves(model.private))
