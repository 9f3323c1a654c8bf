"""The mean loss of a model on all rows of a client, and measures of it.

The loss is the cross-entropy of `Task.predict`, as `evaluation.metrics` judges it:
dropout is off. A measure is a function of one client's `Objective`; `measure` runs it
for one client, for every client, or for pooled rows (`planes.pooled`) as one program.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from pfljax.core.communication import shapes_of_model
from pfljax.core.training import mean_over_rows
from pfljax.core.types import Array, Batch, ClientData, Params, Task
from pfljax.landscape import stacked


class Objective(NamedTuple):
    """The loss L of one client around its model, on vectors of D numbers."""

    weights: Array  # f32[D], all parameters of the model
    value_and_grad: Callable[[Array], tuple[Array, Array]]  # w -> L(w), f32[D]
    curvature: Callable[[Array], Array]  # v -> H v, f32[D], the Hessian at `weights`
    unravel: Callable[[Array], Params]


class Static(NamedTuple):
    """What a compiled program depends on beside shapes."""

    function: Callable[..., Any]  # (objective, shared, *options) -> pytree
    predict: Callable[[Params, Batch], Array]
    options: tuple[int | bool, ...]
    is_stacked: tuple[bool, ...]  # the parameters, and data
    batch_size: int


def measure(
    function: Callable[..., Any],
    task: Task,
    params: Params,
    data: ClientData,
    shared: Any,
    options: tuple[int | bool, ...] = (),
    *,
    batch_size: int,
    chunk: int | None,
) -> Any:
    """`function(objective, shared, *options)` of the client, or stacked over clients.

    Args:
      function: of a module, for programs are kept by it; NumPy leaves come back.
      task: the model.
      params: one model, or stacked over C clients.
      data: a client's rows, offset and size i32[], or C clients', i32[C].
      shared: arrays that are the same for all clients: a key, a radius.
      options: static numbers.
      batch_size: rows at once; it changes the memory and the time, not the result.
      chunk: clients at once; None: 1 on a CPU, else as many as fit into memory.

    Raises:
      ValueError: for parameters that are not the task's, or impossible numbers.
    """
    is_stacked = stacked.find_stacked(task, {"params": params}, data)
    stacked.check_whole("batch_size", batch_size, 1)
    static = Static(
        function=function,
        predict=task.predict,
        options=options,
        is_stacked=is_stacked,
        batch_size=batch_size,
    )
    arguments = (static, params, data, shared)
    return jax.device_get(stacked.call(_program, arguments, chunk))


@partial(jax.jit, static_argnums=(0, 4))
def _program(
    static: Static,
    params: Params,
    data: ClientData,
    shared: Any,
    width: int,
) -> Any:
    def one(models: tuple[Params, ...], rows: ClientData) -> Any:
        objective = make_objective(static.predict, models[0], rows, static.batch_size)
        result = static.function(objective, shared, *static.options)
        has_rows = rows.size > 0
        return jax.tree.map(lambda leaf: jnp.where(has_rows, leaf, jnp.nan), result)

    # An accelerator's default rounds factors to 10 bits: the basis of Lanczos would
    # not stay orthogonal.
    with jax.default_matmul_precision("highest"):
        return stacked.over_models(one, (params,), data, static.is_stacked, width)


def make_objective(
    predict: Callable[[Params, Batch], Array],
    params: Params,
    data: ClientData,
    batch_size: int,
) -> Objective:
    """The objective on the rows of one client, summed over batches in one loop."""
    weights, unravel = ravel_pytree(params)

    def gradient(batch: Batch, w: Array) -> tuple[Array, Array]:
        return jax.value_and_grad(lambda w: _loss(predict, unravel(w), batch))(w)

    def value_and_grad(w: Array) -> tuple[Array, Array]:
        return mean_over_rows(lambda batch: gradient(batch, w), data, batch_size)

    def curvature(v: Array) -> Array:
        # Forward over reverse: the product is exact, and the matrix is never made.
        def product(batch: Batch) -> Array:
            _, (_, tangent) = jax.jvp(partial(gradient, batch), (weights,), (v,))
            return tangent

        return mean_over_rows(product, data, batch_size)

    return Objective(
        weights=weights,
        value_and_grad=value_and_grad,
        curvature=curvature,
        unravel=unravel,
    )


def _loss(predict: Any, params: Params, batch: Batch) -> Array:
    logits = predict(params, batch).astype(jnp.float32)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch.y)
    # A batch without rows divides by 1: its loss is 0, not NaN.
    count = jnp.maximum(batch.mask.sum(), 1)
    return jnp.sum(batch.mask * losses) / count


def num_parameters(task: Task) -> int:
    """Number of parameters of the task's model."""
    leaves = jax.tree.leaves(shapes_of_model(task))
    return sum(math.prod(leaf.shape) for leaf in leaves)
