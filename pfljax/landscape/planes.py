"""Metrics on a grid of a plane through a model, as one compiled program."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import tree
from pfljax.metrics import score
from pfljax.types import Array, ClientData, Key, Params, Task


class Plane(NamedTuple):
    """Metrics at center + alpha_i u + beta_j v."""

    alpha: np.ndarray  # f32[A]
    beta: np.ndarray  # f32[B]
    metrics: dict[str, np.ndarray]  # "loss", "accuracy", ...: f32[A, B]


def random_direction(key: Key, params: Params) -> Params:
    """A Gaussian direction with the norm of `params` filter by filter.

    A filter is all that leads to one output: a slice of the last axis. Vectors (biases,
    and the scales of normalisation) do not move. Li et al., NeurIPS 2018,
    https://arxiv.org/abs/1712.09913 (Section 4).
    """
    leaves, treedef = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    found = [_filterwise(k, leaf) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(treedef, found)


def _filterwise(key: Key, leaf: Array) -> Array:
    if leaf.ndim < 2:
        return jnp.zeros_like(leaf)
    drawn = jax.random.normal(key, leaf.shape, leaf.dtype)
    axes = tuple(range(leaf.ndim - 1))
    own, its = (jnp.sqrt(jnp.square(a).sum(axes)) for a in (leaf, drawn))
    return drawn * own / jnp.maximum(its, 1e-12)


def plane(
    task: Task,
    center: Params,
    u: Params,
    v: Params,
    data: ClientData,
    *,
    alpha: Sequence[float] | np.ndarray,
    beta: Sequence[float] | np.ndarray,
    batch_size: int = 10,
) -> Plane:
    """Metrics of the models center + alpha u + beta v on the pooled rows of `data`.

    Args:
      task: the model.
      center, u, v: parameter trees of one structure.
      data: rows of C clients, offset and size i32[C].
      alpha, beta: places on the two axes.
      batch_size: of the batchwise calibration errors.
    """
    a, b = (np.asarray(axis, np.float32) for axis in (alpha, beta))
    grid = np.stack(np.meshgrid(a, b, indexing="ij"), -1).reshape(-1, 2)
    rows = pooled(data)
    found = jax.device_get(_program(task.predict, center, u, v, rows, grid, batch_size))
    shape = len(a), len(b)
    return Plane(a, b, {name: values.reshape(shape) for name, values in found.items()})


@partial(jax.jit, static_argnames=("predict", "batch_size"))
def _program(predict, center, u, v, data, places, batch_size):
    """Metrics [P] at `places` [P, 2]; one task's equal shapes are traced once."""

    def at(place):
        model = tree.axpy(place[1], v, tree.axpy(place[0], u, center))
        return score(lambda x: predict(model, x), data, batch_size)

    return jax.lax.map(at, places)


def pooled(data: ClientData) -> ClientData:
    """The rows of all clients as those of one: no client is padded to whole batches."""
    spans = zip(np.asarray(data.offset), np.asarray(data.size), strict=True)
    rows = np.concatenate([offset + np.arange(size) for offset, size in spans])
    examples = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], data.examples)
    return ClientData(examples, jnp.int32(0), jnp.int32(len(rows)))
