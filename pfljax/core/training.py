"""How a client takes steps: `fit` is the one minibatch loop of every method.

A method changes local training by giving `fit` another loss (`proximal`, ...), or in
place of the loss's own gradient a function (params, batch, key) -> (value, grads).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from pfljax.core import statistics, tree
from pfljax.core.keys import derive
from pfljax.core.shuffle import index_shuffle
from pfljax.core.types import (
    Array,
    Batch,
    ClientData,
    Key,
    Local,
    Metrics,
    Params,
    Turn,
)

Loss = Callable[[Any, Batch, Key], Array]


def learning_rate(local: Local, round_: Array) -> Any:
    """The learning rate of this round (0 for the first), traced or not."""
    rate = local.learning_rate
    return rate(round_) if callable(rate) else rate


def steps_per_epoch(local: Local, size: Array) -> Array:
    """Batches that cover `size` rows, the last one short if need be; i32[...]."""
    return -(-size // local.batch_size)


def budget(local: Local, size: Array) -> Array:
    """Steps of a client with `size` training rows; i32[...]."""
    if local.epochs is None:
        return jnp.full_like(size, local.steps or 0)
    return local.epochs * steps_per_epoch(local, size)


def with_epochs(turn: Turn, local: Local, epochs: int | None) -> Turn:
    """The turn with its budget scaled to `epochs`; None leaves it as it is."""
    if epochs is None:
        return turn
    if local.epochs is None:
        raise ValueError(
            f"one part is to train {epochs} epochs, but local training counts steps; "
            "give epochs instead of steps, or None for as many steps"
        )
    return turn._replace(steps=turn.steps * epochs // local.epochs)


def minibatch(data: ClientData, step: Array, key: Key, batch_size: int) -> Batch:
    """Rows of a step: exact epochs, each shuffled anew, the last batch short."""
    size = jnp.maximum(data.size, 1)
    per_epoch = -(-size // batch_size)
    place = step % per_epoch * batch_size + jnp.arange(batch_size)
    shuffled = index_shuffle(jnp.minimum(place, size - 1), size, key, step // per_epoch)
    return rows(data, shuffled, place < data.size)


def sample(data: ClientData, key: Key, batch_size: int) -> Batch:
    """`batch_size` rows drawn uniformly with replacement."""
    drawn = jax.random.randint(key, (batch_size,), 0, jnp.maximum(data.size, 1))
    return rows(data, drawn, jnp.full(batch_size, data.size > 0))


def rows(data: ClientData, index: Array, valid: Array) -> Batch:
    """The client's rows at `index` [B], in storage type; mask from `valid` [B]."""
    x, y = tree.take(data.examples, data.offset + index)
    return Batch(x, y, valid.astype(jnp.float32))


def in_batches(batch: Batch, batch_size: int) -> Batch:
    """A batch of whole batches as a stack of them, leaves [B / batch_size, ...].

    A model applied to each by `vmap` sees `batch_size` rows, as its batch normalisation
    must, however many are computed at once.
    """
    return jax.tree.map(
        lambda leaf: leaf.reshape(-1, batch_size, *leaf.shape[1:]), batch
    )


def fit(
    loss: Loss,
    params: Any,
    data: ClientData,
    turn: Turn,
    local: Local,
    gradient: Callable[..., tuple[Array, Any]] | None = None,
) -> tuple[Any, Metrics]:
    """Parameters after `turn.steps` minibatch steps, and the mean loss of the steps.

    The optimizer starts afresh. Clients of different budgets may run under one vmap: a
    client that is done keeps its parameters and optimizer state.
    """
    start = params, started(params, turn, local)
    (params, _), metrics = go_on(loss, start, data, turn, local, gradient)
    return params, metrics


def started(params: Any, turn: Turn, local: Local) -> Any:
    """The optimizer's state before a client's first step of this round."""
    return optimizer_of(local, turn).init(params)


def optimizer_of(local: Local, turn: Turn) -> optax.GradientTransformation:
    """The optimizer of this round; running statistics step outside of it."""
    return statistics.beside(local.optimizer(learning_rate(local, turn.round)))


def go_on(
    loss: Loss,
    start: tuple[Any, Any],
    data: ClientData,
    turn: Turn,
    local: Local,
    gradient: Callable[..., tuple[Array, Any]] | None = None,
) -> tuple[tuple[Any, Any], Metrics]:
    """`fit` from (parameters, optimizer state), which it returns as well."""
    optimizer = optimizer_of(local, turn)
    value_and_grad = gradient or jax.value_and_grad(loss)
    order, noise = derive(turn.key, "minibatches"), derive(turn.key, "noise")

    def step(index: Array, carry: Any) -> Any:
        (params, moments), total = carry
        batch = minibatch(data, index, order, local.batch_size)
        value, grads = value_and_grad(params, batch, jax.random.fold_in(noise, index))
        updates, moments = optimizer.update(grads, moments, params)
        return (optax.apply_updates(params, updates), moments), total + value

    end, total = jax.lax.fori_loop(0, turn.steps, step, (start, jnp.float32(0)))
    return end, {"loss": total / jnp.maximum(turn.steps, 1)}


def mean_over_rows(
    value: Callable[[Batch], Any], data: ClientData, batch_size: int
) -> Any:
    """Mean over the client's rows of `value`, itself a mean over a batch."""
    size = jnp.maximum(data.size, 1)

    def add(index: Array, total: Any) -> Any:
        place = index * batch_size + jnp.arange(batch_size)
        batch = rows(data, jnp.minimum(place, size - 1), place < data.size)
        return tree.axpy(batch.mask.sum() / size, value(batch), total)

    first = rows(data, jnp.zeros(batch_size, jnp.int32), jnp.zeros(batch_size, bool))
    zero = tree.zeros(jax.eval_shape(value, first))
    return jax.lax.fori_loop(0, -(-data.size // batch_size), add, zero)


def full_gradient(
    loss: Loss, params: Params, data: ClientData, key: Key, batch_size: int
) -> tuple[Array, Params]:
    """(F_k, grad F_k) at `params`, over all of the client's rows."""

    def value(batch: Batch) -> tuple[Array, Params]:
        return jax.value_and_grad(loss)(params, batch, key)

    return mean_over_rows(value, data, batch_size)
