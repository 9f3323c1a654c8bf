"""pFedVEM: clients have posteriors of their heads, weighted by their confidence.

Zhu, Ma, Blaschko, CVPR 2023, https://arxiv.org/abs/2305.12557

    Server   w, the mean of the prior of the heads; theta, the body
    Client   q_k = N(mu_k, sigma_k^2), the posterior of the client's head
    Message  w, theta         Upload  mu_k, theta_k, tau_k

A round has three steps, where d is the number of parameters of a head:
1. The confidence tau is set, and then fixed: 1 / tau = rho^2, the uncertainty plus the
   deviation, (sum sigma^2 + |mu - w|^2) / d.
2. `head_steps` of gradient descent in q minimise  n_k E_q[f_k] + KL(q || N(w, rho^2))
   over all examples, with theta fixed.
3. Local training of theta minimises E_q[f_k], with q fixed.

Expectations are means over draws of the head. The server takes
w <- sum_k tau_k mu_k / sum_k tau_k  and  theta <- sum_k n_k theta_k / sum_k n_k.
Client k is evaluated with the newest theta and q_k, or with (theta, w) before it first
takes part. tau, sum sigma^2 / d and |mu - w|^2 / d are metrics of training, and
quantities of each client in every evaluation.

Differs from the authors' code, where all clients train in every round, the heads start
at N(0, 1), and a participant is evaluated with its own theta_k. Here the cohort trains,
and all heads start at that of the model.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.bayesian import _gaussian as gaussian
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive, fold
from pfljax.core.minibatches import steps_per_epoch
from pfljax.core.ranges import AtLeastOne, Count, Deviation, NotNegative
from pfljax.core.training import budget, fit, full_gradient
from pfljax.core.types import Algorithm, Local, Params, Task

LEAST = 1e-12  # of rho^2


class Upload(NamedTuple):
    """A client's model and confidence."""

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

    With a `scale` near 0 a head is a point, which the prior pulls to w like Ditto with
    lam = tau / n_k. A client is evaluated with mu_k, or with the mean probabilities of
    `draws` heads drawn from q_k.

    Args:
      head_steps: steps of a client's head.
      head_lr: rate of the local optimizer in these, for a sum over examples.
      samples: heads drawn in each step.
      scale: first standard deviation.
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
        # A point: all draws of it are equal.
        return predictive(turn, server, gaussian.around(w, gaussian.LEAST))

    def work(steps, size, is_first):
        in_epoch = steps_per_epoch(local, size)
        share = head_steps * steps // jnp.maximum(budget(local, size), 1)
        return samples * (steps + share * in_epoch)

    def origin(message, q, upload):
        _, body = tree.split(message, in_head)
        return Upload(params=tree.merge(body, q.mean), tau=None)

    return fedavg(task, local)._replace(
        init_client=init_client,
        train=training(task, local, samples, head_lr, head_steps),
        work=work,
        aggregate=aggregate,
        personal=lambda turn, server, q, data: predictive(turn, server, q),
        newcomer=newcomer,
        # As the client would send them in its next round.
        quantities=lambda server, q: confidence(q, tree.split(server, in_head)[0]),
        predict=gaussian.predicting(task, task.predict),
        origin=origin,
        parts=("body", "head"),
    )


def training(task, local, samples, rate, steps):
    """The `train` of pFedVEM; `rate` and `steps` are those of the head."""
    in_head = tree.matches(task.groups, "head")
    train_head = head_training(task, local, samples, rate, steps)

    def train(turn, server, q, data):
        w, body = tree.split(server, in_head)
        # Before the head moves: this is also what the server receives.
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

        # All examples in every step: the minibatch is not used.
        def gradient(q, batch, key):
            mean, slope = full_gradient(loss, q, data, local.batch_size, key)
            pull = jax.grad(gaussian.kl)(q, prior)
            return mean, tree.add(statistics.scale(slope, data.size), pull)

        # A client that does part of its work takes that part of these steps as well.
        share = steps * turn.steps // jnp.maximum(budget(local, data.size), 1)
        own_turn = fold(turn, "head", share)
        return fit(loss, q, data, own_turn, stepped, gradient)[0]

    return train


def head_loss(task, body, q, batch, key, samples):
    """E_q of the loss, as a mean over draws of the head."""

    def head_value(head):
        return task.loss(tree.merge(body, head), batch, key)

    # Derived: the key itself is that of dropout.
    return gaussian.expectation(head_value, q, derive(key, "draws"), samples)
