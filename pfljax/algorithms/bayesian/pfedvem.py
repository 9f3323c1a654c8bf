"""pFedVEM. Zhu, Ma, Blaschko, CVPR 2023, https://arxiv.org/abs/2305.12557

    Server   w, the mean of the heads' prior; theta, the body
    Client   q_k = N(mu_k, sigma_k^2), this client's posterior of its head
    Message  w, theta         Upload  mu_k, theta_k, tau_k
A round, with d the parameters of a head: first the confidence, which then is fixed,
1 / tau = rho^2 = (sum sigma^2 + |mu - w|^2) / d,  uncertainty and deviation together;
then `head_steps` of gradient descent of q over all rows, theta fixed, down
n_k E_q[f_k] + KL(q || N(w, rho^2));  then local training of theta, down E_q[f_k], q
fixed. Expectations are means over draws of the head. The server takes
w <- sum_k tau_k mu_k / sum_k tau_k  and  theta <- sum_k n_k theta_k / sum_k n_k.
Client k is judged by the newest theta under q_k, or by (theta, w) before it ever took
part. tau, sum sigma^2 / d and |mu - w|^2 / d are metrics of training, and at every
evaluation quantities of each client.

Differs from the authors' code: there all clients train in every round, and the heads
begin at N(0, 1). Here the cohort trains, and all heads begin at the model's own.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.bayesian import _gaussian as gaussian
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.keys import derive, fold
from pfljax.core.training import budget, fit, full_gradient
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import AtLeastOne, Count, Deviation, NotNegative, component

LEAST = 1e-12  # of rho^2


class Upload(NamedTuple):
    """What a client sends."""

    params: Params  # theta_k and mu_k
    tau: Any  # f32[]


@component
def pfedvem(
    task: Task,
    local: Local,
    *,
    head_steps: Count = 10,
    head_lr: NotNegative = 1e-3,
    samples: AtLeastOne = 5,
    scale: Deviation = 1.0,
    draws: Count = 0,
) -> Algorithm:
    """Builds pFedVEM; without a head it is FedAvg.

    q_k begins with the standard deviation `scale`; near 0 a head is a point, which the
    prior pulls to w as Ditto does with lam = tau / n_k. `head_lr` is the rate of the
    optimizer of `local` there, for a sum over rows. `samples` heads are drawn a step. A
    client is judged by mu_k, or with `draws` by the mean probabilities of so many draws
    of its head.

    Args:
      head_steps: steps of a client's head.
      head_lr: rate of these, for a sum over rows.
      samples: heads drawn a step.
      scale: standard deviation at first.
      draws: heads drawn for an evaluation; 0 for the mean.
    """
    in_head = tree.matches(task.groups, "head")

    def init_client(params, client_id, key):
        head, _ = tree.split(params, in_head)
        return gaussian.around(head, scale)

    def aggregate(server, uploads, cohort):
        heads, bodies = tree.split(uploads.params, in_head)
        weight = uploads.tau * aggregation.uniform(cohort)
        w = aggregation.mean(heads, weight)
        body = aggregation.mean(bodies, aggregation.by_examples(cohort))
        return tree.merge(body, w)

    def predictive(turn, server, q):
        _, body = tree.split(server, in_head)
        return gaussian.predictive(q, body, derive(turn.key, "draws"), draws)

    def newcomer(turn, server, data):
        w, _ = tree.split(server, in_head)
        # A point: draws of it are all alike.
        return predictive(turn, server, gaussian.around(w, gaussian.LEAST))

    def origin(message, q, upload):
        _, body = tree.split(message, in_head)
        return Upload(params=tree.merge(body, q.mean), tau=None)

    return fedavg(task, local)._replace(
        init_client=init_client,
        train=training(task, local, samples, head_lr, head_steps),
        aggregate=aggregate,
        personal=lambda turn, server, q, data: predictive(turn, server, q),
        newcomer=newcomer,
        # As the client would send them in the next round.
        quantities=lambda server, q: confidence(q, tree.split(server, in_head)[0]),
        predict=gaussian.predicting(task.predict),
        origin=origin,
        parts=("body", "head"),
    )


def training(task, local, samples, rate, steps):
    """The `train` of pFedVEM; `rate` and `steps` are those of the head."""
    in_head = tree.matches(task.groups, "head")
    train_head = head_training(task, local, samples, rate, steps)

    def train(turn, server, q, data):
        w, body = tree.split(server, in_head)
        # Before the head moves, as it comes to the server too.
        measured = confidence(q, w)
        q = train_head(turn, body, w, measured["tau"], q, data)

        def loss(body, batch, key):
            return head_loss(task, body, q, batch, key, samples)

        body, metrics = fit(loss, body, data, turn, local)
        params = tree.merge(body, q.mean)
        return q, Upload(params, measured["tau"]), metrics | measured

    return train


def confidence(q, w):
    """tau = 1 / rho^2, and the two parts of rho^2."""
    count = max(gaussian.size(q), 1)
    uncertainty = tree.square_norm(gaussian.std(q)) / count
    deviation = tree.square_norm(tree.sub(q.mean, w)) / count
    tau = 1 / jnp.maximum(uncertainty + deviation, LEAST)
    return {"tau": tau, "uncertainty": uncertainty, "deviation": deviation}


def head_training(task, local, samples, rate, steps):
    """A function (turn, body, w, tau, q, data) -> the posterior after its steps."""
    stepped = local._replace(learning_rate=rate)

    def train(turn, body, w, tau, q, data):
        prior = gaussian.around(w, tau**-0.5)

        def loss(q, batch, key):
            return head_loss(task, body, q, batch, key, samples)

        # All rows at every step: the minibatch is not looked at.
        def gradient(q, batch, key):
            mean, slope = full_gradient(loss, q, data, local.batch_size, key)
            pull = jax.grad(gaussian.kl)(q, prior)
            return mean, tree.add(statistics.scale(slope, data.size), pull)

        # Who does a part of the work does that part of it here, too.
        share = steps * turn.steps // jnp.maximum(budget(local, data.size), 1)
        own_turn = fold(turn, "head")._replace(steps=share)
        return fit(loss, q, data, own_turn, stepped, gradient)[0]

    return train


def head_loss(task, body, q, batch, key, samples):
    """E_q of the loss, over draws of the head."""

    def head_value(head):
        return task.loss(tree.merge(body, head), batch, key)

    # Derived, for the key itself is that of dropout.
    return gaussian.expectation(head_value, q, derive(key, "draws"), samples)
