"""Local training: `fit`, on the one loop over minibatches, `over_batches`.

`fit` steps parameters by an optimizer. A method changes local training with another
loss, a penalty beside the loss, another gradient or another objective, never with its
own loop. A method with another kind of step passes it to `over_batches`. FedProx:

    def penalty(w_k):
        return mu / 2 * tree.square_norm(tree.sub(w_k, w))

    w_k, metrics = fit(task.loss, w, data, turn, local, penalty=penalty)
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from pfljax.core import tree
from pfljax.core.keys import derive, fold
from pfljax.core.minibatches import each_minibatch, steps_per_epoch, take_batch
from pfljax.core.optimizers import local_optimizer
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

Loss = Callable[[Any, Batch, Key], Any]  # f32[], unless there is a gradient
Gradient = Callable[[Any, Batch, Key], tuple[Array, Any]]  # (data loss, gradient)
# (the value to minimise, the data loss)
Objective = Callable[[Any, Batch, Key], tuple[Array, Array]]
MOMENTS = "moments"  # what `fit` calls the optimizer's last state, if a client keeps it
Step = Callable[[Any, Batch, Key], tuple[Any, Metrics]]  # carry -> (carry, metrics)


def fit(
    loss: Loss,
    params: Any,
    data: ClientData,
    turn: Turn,
    local: Local,
    gradient: Gradient | None = None,
    penalty: Callable[[Any], Array] | None = None,
    metrics: Sequence[str] = ("loss",),
) -> tuple[Any, Metrics]:
    """Parameters after `turn.steps` minibatch steps, and their metrics.

    The optimizer starts afresh, unless `local.start` is set. The metric "loss" is the
    mean over steps of the data loss before the step. "penalty" is separate, so that the
    losses of methods are comparable; it is that of the parameters after the last step.

    Args:
      loss: (params, batch, key) -> f32[].
      params: the parameters to step.
      data: the client's training examples.
      turn: the client's budget and key.
      local: batch size, learning rate and optimizer.
      gradient: (params, batch, key) -> (data loss, gradient), in place of that of
        `loss`.
      penalty: params -> f32[], added to the loss; not together with `gradient`.
      metrics: () if the loss is not used, which then is not summed.
    """
    optimizer = local_optimizer(local, turn.round)
    if penalty is not None:
        gradient = add_penalty(loss, penalty)
    gradient = gradient or jax.value_and_grad(loss)

    def step(carry: Any, batch: Batch, key: Key) -> tuple[Any, Metrics]:
        params, moments = carry
        value, grads = gradient(params, batch, key)
        updates, moments = optimizer.update(grads, moments, params)
        params = optax.apply_updates(params, updates)
        return (params, moments), {"loss": value}

    moments = optimizer.init(params)
    if local.start is not None:
        moments = local.start(moments)
    start = params, moments
    (params, moments), means = over_batches(step, start, data, turn, local, metrics)
    if penalty is not None:
        # Once: computing it at each step took a third of FedProx's time.
        means["penalty"] = penalty(params)
    if local.start is not None:
        means[MOMENTS] = moments
    return params, means


def fit_part(
    loss: Loss,
    params: Any,
    chosen: Any,
    data: ClientData,
    turn: Turn,
    local: Local,
) -> tuple[Any, Metrics]:
    """`fit` for the leaves where `chosen` is True; the others stay as they are."""
    stepped, fixed = tree.split(params, chosen)

    def loss_of_part(stepped: Any, batch: Batch, key: Key) -> Array:
        return loss(tree.merge(stepped, fixed), batch, key)

    stepped, metrics = fit(loss_of_part, stepped, data, turn, local)
    return tree.merge(stepped, fixed), metrics


def fit_objective(
    objective: Objective,
    params: Any,
    data: ClientData,
    turn: Turn,
    local: Local,
) -> tuple[Any, Metrics]:
    """`fit` for an objective that differs from the data loss, and returns both.

    `objective` is (params, batch, key) -> (the value to minimise, the data loss).
    """
    # The gradient takes the place of that of the loss.
    return fit(objective, params, data, turn, local, _differentiate(objective))


def _differentiate(objective: Objective) -> Gradient:
    """(data loss, gradient of the objective)."""
    slope_of = jax.grad(objective, has_aux=True)

    def gradient(params: Any, batch: Batch, key: Key) -> tuple[Array, Any]:
        grads, loss = slope_of(params, batch, key)
        return loss, grads

    return gradient


def add_penalty(loss: Loss, penalty: Callable[[Any], Array]) -> Gradient:
    """(loss, gradient of loss + penalty)."""

    def objective(params: Any, batch: Batch, key: Key) -> tuple[Array, Array]:
        data_loss = loss(params, batch, key)
        return data_loss + penalty(params), data_loss

    return _differentiate(objective)


def over_batches(
    step: Step,
    carry: Any,
    data: ClientData,
    turn: Turn,
    local: Local,
    metrics: Sequence[str] = ("loss",),
) -> tuple[Any, Metrics]:
    """The carry after `turn.steps` minibatches, and the mean of each step's metrics.

    This is the one loop over minibatches. Clients with different budgets may run under
    one vmap: a client that is done keeps its carry.

    Args:
      step: (carry, batch, key) -> (carry, metrics); the key is that of the step.
      carry: the state of the steps; its structure, shapes and dtypes stay.
      data: the client's training examples.
      turn: the client's budget and key.
      local: local training, for its batch size.
      metrics: the names of the scalars that a step returns.
    """
    # Two streams: methods see the same minibatches whether they draw noise or not.
    order_key = derive(turn.key, "minibatches")
    noise_key = derive(turn.key, "noise")

    def body(index: Array, batch: Batch, loop: Any) -> Any:
        carry, totals = loop
        step_key = jax.random.fold_in(noise_key, index)
        carry, values = step(carry, batch, step_key)
        return carry, {name: totals[name] + values[name] for name in totals}

    start = carry, {name: jnp.float32(0) for name in metrics}
    # Under vmap it runs as many steps as the largest budget, and no more.
    carry, totals = each_minibatch(
        body, start, data, turn.steps, order_key, local.batch_size
    )
    steps = jnp.maximum(turn.steps, 1)
    return carry, {name: total / steps for name, total in totals.items()}


def budget(local: Local, size: Array) -> Array:
    """The number of steps of a client with `size` training examples; i32[...].

    Half an epoch is half of its steps, rounded (`times`).
    """
    if local.epochs is None:
        return jnp.full_like(size, local.steps or 0)
    return times(steps_per_epoch(local, size), local.epochs)


def times(steps: Array, factor: int | float) -> Array:
    """factor * steps, i32[...]: rounded, halves up; 0 only if steps or factor are 0.

    So a client with examples takes a step, however small its part of an epoch is.
    """
    if isinstance(factor, int):  # exact, even beyond the integers of float32
        return steps * factor
    nearest = jnp.floor(factor * steps + 0.5).astype(jnp.int32)
    return jnp.maximum(nearest, jnp.where(factor > 0, jnp.minimum(steps, 1), 0))


def with_epochs(
    turn: Turn,
    local: Local,
    epochs: int | float | None,
) -> Turn:
    """The turn with its budget scaled to `epochs`; None keeps it."""
    return turn._replace(steps=steps_in_epochs(turn.steps, local, epochs))


def steps_in_epochs(steps: Any, local: Local, epochs: int | float | None) -> Any:
    """The local steps i32[...] scaled to `epochs`; None keeps them."""
    if epochs is None:
        return steps
    if local.epochs is None:
        raise ValueError(
            f"one part is to train {epochs} epochs, but local training counts steps; "
            "give epochs instead of steps, or None for as many steps"
        )
    if isinstance(epochs, int) and isinstance(local.epochs, int):
        return steps * epochs // local.epochs
    return times(steps, epochs / local.epochs)


def fine_tune(
    loss: Loss,
    params: Any,
    data: ClientData,
    turn: Turn,
    local: Local,
    steps: int,
) -> Any:
    """Parameters after `steps` minibatches for an evaluation, in a separate stream."""
    turn = fold(turn, "finetune", steps)
    tuned, _ = fit(loss, params, data, turn, local, metrics=())
    return tuned


def descend(gradient: Callable[[Any], Any], params: Any, steps: int, rate: Any) -> Any:
    """Parameters after so many steps of gradient descent, without minibatches."""

    def step(_: Array, params: Any) -> Any:
        return tree.axpy(-rate, gradient(params), params)

    return jax.lax.fori_loop(0, steps, step, params)


def mean_over_examples(
    value: Callable[[Batch], Any],
    data: ClientData,
    batch_size: int,
) -> Any:
    """Mean over the client's examples of `value`, itself a mean over a batch."""
    size = jnp.maximum(data.size, 1)

    def add(index: Array, total: Any) -> Any:
        batch = take_batch(data, index, batch_size)
        # The last batch may be short: its mean is weighted by its size.
        share = batch.mask.sum() / size
        return tree.axpy(share, value(batch), total)

    first = take_batch(data, jnp.int32(0), batch_size)
    shapes = jax.eval_shape(value, first)
    batches = -(-data.size // batch_size)
    return jax.lax.fori_loop(0, batches, add, tree.zeros(shapes))


def full_loss(
    loss: Callable[[Params, Batch, Key | None], Array],
    params: Params,
    data: ClientData,
    batch_size: int,
) -> Array:
    """F_k, the mean loss over all of the client's examples, in evaluation mode."""

    def value(batch: Batch) -> Array:
        return loss(params, batch, None)

    return mean_over_examples(value, data, batch_size)


def full_gradient(
    loss: Loss,
    params: Params,
    data: ClientData,
    batch_size: int,
    key: Key | None = None,
) -> tuple[Array, Params]:
    """(F_k, grad F_k) at `params`, over all of the client's examples.

    It is in evaluation mode, without dropout, unless there is a `key`, which all
    batches share.
    """

    def value(batch: Batch) -> tuple[Array, Params]:
        return jax.value_and_grad(loss)(params, batch, key)

    return mean_over_examples(value, data, batch_size)
