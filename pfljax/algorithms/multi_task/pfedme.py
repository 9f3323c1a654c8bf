"""pFedMe. T. Dinh et al., NeurIPS 2020, https://arxiv.org/abs/2006.08848 (Algorithm 1).

    Server   w                Client  theta_k
    Message  w                Upload  w_k
From w_k = w, every local step draws one minibatch, takes K steps on it of
theta <- theta - eta_p (grad f(theta) + lam (theta - w_k)), and then one of
w_k <- w_k - eta lam (w_k - theta). The server moves by
w <- (1 - beta) w + beta mean_k w_k. Client k is judged by theta_k, or before it ever
took part by w, from which `newcomer_steps` minibatches find its own theta.
"""

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.keys import fold
from pfljax.core.losses import proximal
from pfljax.core.optimizers import beside
from pfljax.core.training import (
    fit,
    learning_rate,
    optimizer_of,
    over_batches,
    steps_per_epoch,
)
from pfljax.core.types import Algorithm, Local, Task

FORMS = ("paper", "superfed-code")


def pfedme(
    task: Task,
    local: Local,
    *,
    lam: float = 15.0,
    inner_steps: int = 5,
    inner_lr: float = 0.1,
    beta: float = 1.0,
    warm: bool = True,
    inner_decay: float = 0.0,
    newcomer_steps: int = 0,
    weighting: str = "uniform",
    as_in: str = "paper",
) -> Algorithm:
    """Builds pFedMe; `beta` = 0 or, by plain SGD, `lam` = 0 leaves w as it is.

    `local` steps w_k: eta is its rate, and a step a minibatch (the paper's R). By plain
    SGD in the paper; momentum and weight decay act on w_k, not on theta. theta starts a
    round at w and goes on from step to step; with warm=False each step begins at w_k,
    and `inner_steps` = 1 is then FedAvg of learning rate eta lam eta_p. The authors'
    code adds a weight decay of 0.001 to theta (`inner_decay`).

    as_in="superfed-code": theta takes an epoch of `local` on f + lam sum_l
    ||theta_l - w_l||, the norm of each tensor un-squared, before each step of w_k; one
    optimizer, and its momentum, goes through all epochs of a round. The options of the
    inner steps are then without effect; the server there has weighting="rows".
    """
    if as_in not in FORMS:
        raise ValueError(f"as_in is {as_in!r}; known: {', '.join(FORMS)}")
    if newcomer_steps and as_in != "paper":
        raise ValueError("newcomer_steps are inner steps: of as_in='paper' alone")
    near = approach(task, lam, inner_steps, inner_lr, inner_decay)
    if as_in == "paper":
        train = minibatchwise(task, local, lam, near, warm)
    else:
        train = epochwise(task, local, lam)
    weights = aggregation.weighting(weighting)

    def newcomer(turn, w, data):
        if newcomer_steps == 0:
            return w
        turn = fold(turn, "newcomer")._replace(steps=jnp.int32(newcomer_steps))
        return own_theta(task, local, near)(turn, w, data)

    def aggregate(w, uploads, cohort):
        return tree.lerp(w, aggregation.mean(uploads, weights(cohort)), beta)

    return fedavg(task, local)._replace(
        init_client=lambda params, client_id, key: params,
        train=train,
        aggregate=aggregate,
        personal=lambda turn, w, theta, data: theta,
        newcomer=newcomer,
    )


def approach(task, lam, steps, rate, decay):
    """A function (theta, w, batch, key) -> theta nearer to the minimum near w."""
    slope_of = jax.grad(task.loss)

    def near(theta, w, batch, key):
        def step(i, theta):
            # Running statistics follow the batches: nothing pulls or decays them.
            away = statistics.without(tree.sub(theta, w))
            pull = tree.axpy(lam, away, slope_of(theta, batch, key))
            pull = tree.axpy(decay, statistics.without(theta), pull)
            return tree.sub(theta, statistics.scale(pull, rate))

        return jax.lax.fori_loop(0, steps, step, theta)

    return near


def own_theta(task, local, near):
    """A function (turn, w, data) -> theta after `turn.steps` minibatches near w."""
    as_it_is = local._replace(optimizer=lambda rate: optax.scale(-1.0))

    def find(turn, w, data):
        def gradient(theta, batch, key):
            return jnp.float32(0), tree.sub(theta, near(theta, w, batch, key))

        return fit(task.loss, w, data, turn, as_it_is, gradient)[0]

    return find


def minibatchwise(task, local, lam, near, warm):
    """The paper's training: w_k steps after the inner steps on each minibatch."""

    def train(turn, w, last, data):
        def gradient(params, batch, key):
            w, theta = params
            begin = theta if warm else w
            value = task.loss(begin, batch, key)
            found = near(begin, w, batch, key)
            slope_w = statistics.scale(tree.sub(w, found), lam)
            return value, (slope_w, tree.sub(theta, found))

        stepped = beside(local, ("model", "other"), lambda rate: optax.scale(-1.0))
        pair, metrics = fit(task.loss, (w, w), data, turn, stepped, gradient)
        return pair[1], pair[0], metrics

    return train


def epochwise(task, local, lam):
    """The training of SuPerFed's code: w_k steps after each epoch of theta."""

    def train(turn, w, last, data):
        whole = steps_per_epoch(local, data.size)
        rate = learning_rate(local, turn.round)
        epochs = -(-turn.steps // jnp.maximum(whole, 1))  # the last may be cut short

        optimizer = optimizer_of(local, turn)

        def epoch(index, carry):
            w, start, total = carry
            key = jax.random.fold_in(turn.key, index)
            steps = jnp.minimum(whole, turn.steps - index * whole)
            own = turn._replace(key=key, steps=steps)

            def step(carry, batch, key):
                theta, moments = carry
                value, slope = jax.value_and_grad(task.loss)(theta, batch, key)
                slope = tree.add(slope, jax.grad(proximal(w, lam, "norm"))(theta))
                updates, moments = optimizer.update(slope, moments, theta)
                return (optax.apply_updates(theta, updates), moments), {"loss": value}

            end, metrics = over_batches(step, start, data, own, local)
            w = tree.axpy(-rate * lam, tree.sub(w, end[0]), w)
            return w, end, tree.add(total, metrics)

        first = w, (w, optimizer.init(w)), {"loss": jnp.float32(0)}
        w, (theta, _), total = jax.lax.fori_loop(0, epochs, epoch, first)
        return theta, w, tree.scale(total, 1 / jnp.maximum(epochs, 1))

    return train
