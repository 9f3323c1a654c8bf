"""The mean loss of a model on all examples of a client, and measures of it.

The loss is the cross-entropy of `Task.predict`, as in `evaluation.metrics`, without
dropout. A measure is a function of one client's `Objective`; `measure` runs it for one
client or for every client as one program.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from pfljax.core import statistics, tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.kinds import cross_entropy
from pfljax.core.losses import mean
from pfljax.core.training import mean_over_examples
from pfljax.core.types import Array, Batch, ClientData, Params, Task
from pfljax.landscape import stacked
from pfljax.landscape.layers import find_layers


class Objective(NamedTuple):
    """The loss L of one client around its model, on flat vectors of D parameters."""

    weights: Array  # f32[D], all parameters that move: no running statistics
    value_and_grad: Callable[[Array], tuple[Array, Array]]  # w -> L(w), f32[D]
    curvature: Callable[[Array], Array]  # v -> H v, f32[D], the Hessian at `weights`
    unravel: Callable[[Array], Params]  # of a direction: 0 for what does not move


def measure(
    function: Callable[..., Any],
    task: Task,
    params: Params,
    data: ClientData,
    shared: Any,
    options: tuple[int | bool, ...],
    batch_size: int,
    *,
    draws: bool = True,
    layer: str | None = None,
) -> Any:
    """`function(objective, shared, *options)` of the client, or stacked over clients.

    Args:
      function: a module-level function, since programs are cached by it. Its leaves are
        returned in NumPy, NaN for a client without examples.
      task: the model.
      params: one model, or stacked over C clients.
      data: the examples of one client, offset and size i32[], or of C clients, i32[C].
      shared: a key, or an array that is the same for all clients, such as a radius.
      options: static numbers.
      batch_size: examples at a time; it changes memory and time, not the result.
      draws: whether `shared` is a key. Each of C clients then gets its own, by its
        place, so that the errors of their estimates are independent.
      layer: that alone moves, see `find_fixed`.

    Raises:
      ValueError: the parameters are not those of the task, or a number is impossible.
    """
    is_stacked = stacked.find_stacked(task, {"params": params}, data)
    stacked.check_whole("batch_size", batch_size, 1)
    by_client = draws and any(is_stacked)
    if by_client:
        stack = data.size if is_stacked[1] else jax.tree.leaves(params)[0]
        shared = jax.random.split(shared, len(stack))
    parts = (params, data, shared)
    is_stacked = (*is_stacked, by_client)
    fixed = find_fixed(task, layer)
    static = (function, task.predict, options, is_stacked, batch_size, fixed)
    return jax.device_get(stacked.call(_measure, (*static, parts)))


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4, 5, 7))
def _measure(function, predict, options, is_stacked, batch_size, fixed, parts, width):
    """`function` of the one client, or of each; `parts` are (params, data, shared)."""

    def measure_client(params: Params, data: ClientData, shared: Any) -> Any:
        objective = make_objective(predict, params, data, batch_size, fixed)
        result = function(objective, shared, *options)
        exists = data.size > 0
        return jax.tree.map(lambda leaf: jnp.where(exists, leaf, jnp.nan), result)

    # An accelerator's default rounds factors to 10 bits: the basis of Lanczos would
    # not stay orthogonal.
    with jax.default_matmul_precision("highest"):
        return stacked.over_models(measure_client, parts, is_stacked, width)


def make_objective(
    predict: Callable[[Params, Batch], Array],
    params: Params,
    data: ClientData,
    batch_size: int,
    fixed: tuple[bool, ...],
) -> Objective:
    """The objective on the examples of one client, summed over batches in one loop."""
    choice = jax.tree.unflatten(jax.tree.structure(params), fixed)
    rest, moving = tree.split(params, choice)
    weights, unravel = ravel_pytree(moving)

    def loss(w: Array, batch: Batch) -> Array:
        model = tree.merge(unravel(w), rest)
        logits = predict(model, batch).astype(jnp.float32)
        return mean(cross_entropy(logits, batch.y), batch)

    def gradient(batch: Batch, w: Array) -> tuple[Array, Array]:
        return jax.value_and_grad(loss)(w, batch)

    def value_and_grad(w: Array) -> tuple[Array, Array]:
        return mean_over_examples(lambda batch: gradient(batch, w), data, batch_size)

    def curvature(v: Array) -> Array:
        # Forward over reverse: the product is exact, and the matrix is never made.
        def product(batch: Batch) -> Array:
            _, (_, tangent) = jax.jvp(partial(gradient, batch), (weights,), (v,))
            return tangent

        return mean_over_examples(product, data, batch_size)

    return Objective(
        weights=weights,
        value_and_grad=value_and_grad,
        curvature=curvature,
        unravel=lambda v: tree.merge(unravel(v), tree.zeros(rest)),
    )


def find_fixed(task: Task, layer: str | None = None) -> tuple[bool, ...]:
    """Which leaves of a model do not move: running statistics, and other layers.

    Without a `layer` of `find_layers`, all layers move.
    """
    fixed = statistics.mask(shapes_of_model(task))
    if layer is not None:
        inside = find_layers(task, [layer])[layer]
        fixed = jax.tree.map(lambda running, moves: running or not moves, fixed, inside)
    return tuple(jax.tree.leaves(fixed))


def num_parameters(task: Task, layer: str | None = None) -> int:
    """Number of parameters of the task's model, or of a layer, that move."""
    leaves = jax.tree.leaves(shapes_of_model(task))
    each = zip(leaves, find_fixed(task, layer), strict=True)
    return sum(math.prod(leaf.shape) for leaf, fixed in each if not fixed)
