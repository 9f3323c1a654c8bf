"""pFedMe: clients optimise Moreau envelopes, with a model of their own near w.

T. Dinh et al., NeurIPS 2020, https://arxiv.org/abs/2006.08848 (Algorithm 1).

    Server   w                Client  theta_k
    Message  w                Upload  w_k

From w_k = w, every local step draws one minibatch, takes K steps
theta <- theta - eta_p (grad f(theta) + lam (theta - w_k))  on it, and then one step
w_k <- w_k - eta lam (w_k - theta).  The server takes
w <- (1 - beta) w + beta mean_k w_k.  Client k is evaluated with theta_k, or with w
before it first takes part.

Differs from the paper: Algorithm 1 trains all clients in every round and averages a
sample of them. Here only the cohort trains; if `--cohort` is as large as `--clients`,
all clients train and all are averaged.
"""

import jax

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.factories import component
from pfljax.core.optimizers import beside, whole_step
from pfljax.core.ranges import Count, NotNegative
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task


@component
def pfedme(
    task: Task,
    local: Local,
    *,
    lam: NotNegative = 15.0,
    inner_steps: Count = 5,
    inner_lr: NotNegative = 0.1,
    beta: NotNegative = 1.0,
) -> Algorithm:
    """Builds pFedMe; `beta` = 0 or, by plain SGD, `lam` = 0 leaves w as it is.

    `local` steps w_k: its rate is eta, and each minibatch is a step (the paper's R).
    The paper uses plain SGD; momentum and weight decay act on w_k, not on theta. theta
    starts a round at w and continues from step to step at the rate `inner_lr`, which no
    decay of the learning rate (`lr_decay`) lowers. One local step with `inner_steps` =
    1 is uniform FedAvg with the learning rate eta lam eta_p.

    Args:
      lam: pull of a client's model to the shared one.
      inner_steps: steps of the client's model for each step of the shared one.
      inner_lr: rate of the client's model.
      beta: share of the mean that the server takes; 0 leaves w as it is.
    """
    grad = jax.grad(task.loss)
    uniform = aggregation.averaging("uniform")

    def gradient(params, batch, key):
        w, theta = params
        # The metric "loss" is that of theta, before its inner steps.
        value = task.loss(theta, batch, key)

        def pull(theta):
            return pull_slope(grad(theta, batch, key), theta, w, lam)

        after = descend(pull, theta, inner_steps, inner_lr)
        slope_w = statistics.scale(tree.sub(w, after), lam)
        # theta takes its whole change, at the rate 1.
        change = tree.sub(theta, after)
        return value, (slope_w, change)

    def train(turn, w, last, data):
        stepped = beside(local, ("model", "other"), whole_step)
        # Both start at w: the theta of the last round is only for evaluations.
        pair, metrics = fit(task.loss, (w, w), data, turn, stepped, gradient)
        w_k, theta = pair
        return theta, w_k, metrics

    def aggregate(w, uploads, cohort):
        mean = uniform(w, uploads, cohort)
        return tree.lerp(w, mean, beta)

    return fedavg(task, local)._replace(
        init_client=lambda params, client_id, key: params,
        train=train,
        work=lambda steps, size, is_first: inner_steps * steps,
        aggregate=aggregate,
        personal=lambda turn, w, theta, data: theta,
        newcomer=lambda turn, w, data: w,
    )


def pull_slope(slope, theta, w, lam):
    """slope + lam (theta - w), the gradient of an inner step."""
    # Running statistics follow the batches and are not pulled.
    away = statistics.without(tree.sub(theta, w))
    return tree.axpy(lam, away, slope)


def descend(gradient, theta, steps, rate):
    """theta after `steps` inner steps of size `rate`."""

    def step(_, theta):
        move = statistics.scale(gradient(theta), rate)
        return tree.sub(theta, move)

    return jax.lax.fori_loop(0, steps, step, theta)
