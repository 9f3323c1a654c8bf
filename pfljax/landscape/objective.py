"""The mean loss of a model on all rows of a client, and measures of it.

The loss is the cross-entropy of `Task.predict`, as `pfljax.metrics` judges it: dropout
is off. A measure is a function of one client's `Objective`; `measure` runs it for one
client, for every client, or for pooled rows (`planes.pooled`) as one program.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from pfljax import engine, tree
from pfljax.local import mean_over_rows
from pfljax.types import Array, Batch, ClientData, Key, Params, Task


class Objective(NamedTuple):
    """The loss L of one client around its model, on vectors of D numbers."""

    weights: Array  # f32[D], all parameters of the model
    value_and_grad: Callable[[Array], tuple[Array, Array]]  # w -> L(w), f32[D]
    curvature: Callable[[Array], Array]  # v -> H v, f32[D], the Hessian at `weights`
    unravel: Callable[[Array], Params]


class How(NamedTuple):
    """What a compiled program depends on beside shapes."""

    function: Callable[..., Any]  # (objective, given, *options) -> pytree
    predict: Callable[[Params, Array], Array]
    options: tuple[int | bool, ...]
    own: bool  # every client has its own parameters
    batch_size: int
    width: int | None


def measure(
    function: Callable[..., Any],
    task: Task,
    params: Params,
    data: ClientData,
    given: Any,
    options: tuple[int | bool, ...] = (),
    *,
    batch_size: int,
    width: int | None,
) -> Any:
    """`function(objective, given, *options)` of the client, or stacked over clients.

    Args:
      function: of a module, for programs are kept by it; NumPy leaves come back.
      task: the model.
      params: one model, or with `data` of C clients also a model of each, [C, ...].
      data: a client's rows, offset and size i32[], or C clients', i32[C].
      given: arrays that are the same for all clients: a key, a radius.
      options: static numbers.
      batch_size: rows at once; it changes the memory and the time, not the result.
      width: clients at once; None for all.

    Raises:
      ValueError: for parameters that are not the task's, or impossible numbers.
    """
    own = _check(task, params, data)
    at_least("batch_size", batch_size, 1)
    if width is not None:
        at_least("width", width, 1)
    how = How(function, task.predict, options, own, batch_size, width)
    return jax.device_get(_program(how, params, data, given))


@partial(jax.jit, static_argnums=0)
def _program(how: How, params: Params, data: ClientData, given: Any) -> Any:
    def one(model: Params, offset: Array, size: Array) -> Any:
        rows = ClientData(data.examples, offset, size)
        objective = of_client(how.predict, model, rows, how.batch_size)
        found = how.function(objective, given, *how.options)
        return jax.tree.map(lambda leaf: jnp.where(size > 0, leaf, jnp.nan), found)

    offset, size = jnp.asarray(data.offset), jnp.asarray(data.size)
    # An accelerator's default rounds factors to 10 bits: the basis of Lanczos would
    # not stay orthogonal.
    with jax.default_matmul_precision("highest"):
        if how.own:
            args = params, offset, size
            return engine.over_clients(one, args, size, how.width)
        shared = partial(one, params)
        if not offset.ndim:
            return shared(offset, size)
        return engine.over_clients(shared, (offset, size), size, how.width)


def of_client(
    predict: Callable[[Params, Array], Array],
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
        def product(batch: Batch) -> Array:  # forward over reverse: exact
            return jax.jvp(lambda w: gradient(batch, w)[1], (weights,), (v,))[1]

        return mean_over_rows(product, data, batch_size)

    return Objective(weights, value_and_grad, curvature, unravel)


def _loss(predict: Any, params: Params, batch: Batch) -> Array:
    logits = predict(params, batch.x).astype(jnp.float32)
    rows = optax.softmax_cross_entropy_with_integer_labels(logits, batch.y)
    return jnp.sum(batch.mask * rows) / jnp.maximum(batch.mask.sum(), 1)


@lru_cache(maxsize=32)
def _shapes(init: Callable[[Key], Params]) -> Params:
    return jax.eval_shape(init, jax.random.key(0))


def count(task: Task) -> int:
    """Number of parameters of the task's model."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(_shapes(task.init)))


def _check(task: Task, params: Params, data: ClientData) -> bool:
    """Whether every client has its own parameters."""
    clients, spans = np.shape(data.size), np.shape(data.offset)
    if len(clients) > 1 or clients != spans:
        raise ValueError(
            f"offset and size of the data have shapes {spans} and {clients}, expected "
            "both () for one client or (C,) for C; give a ClientData of either"
        )
    wanted, came = tree.paths(_shapes(task.init)), tree.paths(params)
    if list(wanted) != list(came):
        raise ValueError(
            f"params has the leaves {', '.join(came)}, expected {', '.join(wanted)}; "
            "give parameters of this task"
        )
    own = bool(clients) and all(
        np.shape(leaf) == clients + wanted[name].shape for name, leaf in came.items()
    )
    for name, leaf in came.items():
        if not own and np.shape(leaf) != wanted[name].shape:
            stacked = f", or {clients + wanted[name].shape} with a model of each client"
            raise ValueError(
                f"params has {name} of shape {np.shape(leaf)}, expected "
                f"{wanted[name].shape}{stacked if clients else ''}; give the "
                "parameters of this task and these clients"
            )
    return own


def at_least(name: str, value: int, least: int, most: int | None = None) -> None:
    """Raises a ValueError unless `value` lies in least .. most."""
    if value < least or (most is not None and value > most):
        bound = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{name} is {value}, expected {bound}; choose such a number")
