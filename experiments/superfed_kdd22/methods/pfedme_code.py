"""pFedMe as SuPerFed's code has it, KDD 2022, https://arxiv.org/abs/2109.07628.

    Server   w                Client  theta_k
    Message  w                Upload  w_k
theta minimises  f + lam sum_l ||theta_l - w_l||  by `local`, an epoch at a time, and
after each epoch  w_k <- w_k - rate lam (w_k - theta). One optimizer, and its momentum,
goes through all epochs of a round. The server weighs by rows and keeps its biases
(`_code`).
"""

import jax
import jax.numpy as jnp
import optax
from _code import keep_biases, pulled

from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.multi_task.pfedme import pfedme
from pfljax.core import tree
from pfljax.core.factories import component
from pfljax.core.minibatches import steps_per_epoch
from pfljax.core.optimizers import learning_rate
from pfljax.core.ranges import NotNegative
from pfljax.core.training import add_penalty, over_batches
from pfljax.core.types import Algorithm, Local, Task


@component
def pfedme_code(task: Task, local: Local, *, lam: NotNegative = 15.0) -> Algorithm:
    """Builds it; a budget that is no whole number of epochs cuts the last one short."""

    def train(turn, w, last, data):
        whole = steps_per_epoch(local, data.size)
        epochs = -(-turn.steps // jnp.maximum(whole, 1))
        rate = learning_rate(local, turn.round)
        optimizer = local.optimizer(rate)

        def epoch(index, carry):
            w, start, total = carry
            own = turn._replace(
                key=jax.random.fold_in(turn.key, index),
                steps=jnp.minimum(whole, turn.steps - index * whole),
            )
            step = step_of_theta(task, optimizer, pulled(w, lam))
            end, metrics = over_batches(step, start, data, own, local)
            w = tree.axpy(-rate * lam, tree.sub(w, end[0]), w)
            return w, end, tree.add(total, metrics)

        zeros = {"loss": jnp.float32(0)}
        first = w, (w, optimizer.init(w)), zeros
        w, (theta, _), total = jax.lax.fori_loop(0, epochs, epoch, first)
        return theta, w, tree.scale(total, 1 / jnp.maximum(epochs, 1))

    by_rows = fedavg(task, local).aggregate
    method = pfedme(task, local)._replace(train=train, aggregate=by_rows)
    return keep_biases(method)


def step_of_theta(task, optimizer, penalty):
    """A step of (theta, moments) on a minibatch."""

    gradient = add_penalty(task.loss, penalty)

    def step(carry, batch, key):
        theta, moments = carry
        loss, slope = gradient(theta, batch, key)
        updates, moments = optimizer.update(slope, moments, theta)
        theta = optax.apply_updates(theta, updates)
        return (theta, moments), {"loss": loss}

    return step
