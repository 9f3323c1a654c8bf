"""FedTGP: the server trains global prototypes with an adaptive margin between them.

Zhang et al., AAAI 2024, https://arxiv.org/abs/2401.03230 (Algorithm 1).

    Server   v_j of each class j, and a network G    Client  w_k, its parameters
    Message  Q^j = G(v_j), the global prototypes     Upload  P_k^j, and which it has

Client k minimises  F_k(w_k) + lam mean_j ||P_k^j - Q^j||,  where P_k^j is the mean of
the features of the minibatch's examples of class j, and j runs over its classes. After
training, P_k^j is that of all examples, in evaluation mode. With
d(k, l) = ||P_k^j - Q^l||, the server takes `server_steps` steps in v and G on the mean
over all uploads (k, j) of
-log [exp(-d(k, j) - m) / (exp(-d(k, j) - m) + sum_{l != j} exp(-d(k, l)))],
where the margin m is the largest distance between the mean uploads of two classes, at
most `tau`, and l runs over all K classes. G is Linear(e, e), ReLU, Linear(e, e). Client
k predicts argmin_j ||f(x) - Q^j||, where f is its own body.

Differs from the paper, where the steps are epochs over batches of the uploads, so that
its server takes several steps in each. Here a step uses them all, so that the order of
clients does not matter. For a single class the paper has no margin; here it is 0.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms import _prototypes as prototypes
from pfljax.algorithms._prototypes import Prototypes
from pfljax.algorithms.local import local as alone
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.losses import pull_features
from pfljax.core.optimizers import ServerRate, server_rate
from pfljax.core.ranges import Count, NotNegative
from pfljax.core.training import descend, fit_objective
from pfljax.core.types import Algorithm, Local, Task


class Server(NamedTuple):
    """The parameters that the server trains, and never sends."""

    v: Any  # f32[K, e]
    network: Any  # G: two layers, (kernel f32[e, e], bias f32[e]) each


@component
def fedtgp(
    task: Task,
    local: Local,
    *,
    lam: NotNegative = 0.1,
    tau: NotNegative = 100.0,
    server_steps: Count = 100,
    server_lr: ServerRate = None,
) -> Algorithm:
    """Builds FedTGP; `lam` = 0 trains as local training does, `tau` = 0 has no margin.

    Args:
      lam: weight of the distance to prototypes; 0 trains alone.
      tau: largest margin between prototypes; 0 for none.
      server_steps: steps of the prototypes in each round; 0 leaves them as drawn.
      server_lr: rate of these steps; None for that of local training.
    """

    def init(params, num_clients, key):
        return draw(key, task.num_classes, prototypes.width(task))

    def aggregate(server, uploads, cohort):
        rate = server_rate(server_lr, local, cohort.round)
        means, weight = prototypes.pairs(uploads, cohort)
        m = jnp.minimum(margin(means, weight), tau)

        def loss(server):
            logits = contrast(means, generate(server), m)
            return prototypes.pair_loss(logits, weight)

        return descend(jax.grad(loss), server, server_steps, rate)

    def personal(turn, server, w, data):
        return prototypes.Nearest(w, complete(generate(server)))

    return alone(task, local)._replace(
        classes=True,
        init=init,
        message=lambda turn, server, w: generate(server),
        train=training(task, local, lam),
        aggregate=aggregate,
        personal=personal,
        predict=lambda model, batch: prototypes.nearness(task, model, batch),
        origin=prototypes.no_origin,
        parts=("body",),
    )


def training(task, local, lam):
    """The `train` of a client, towards the global prototypes."""

    def train(turn, message, w, data):
        known = complete(message)

        def pull(z, batch):
            distance, both = prototypes.distances(z, batch, known)
            return lam * jnp.sum(distance) / jnp.maximum(jnp.sum(both), 1)

        objective = pull_features(task, pull)
        w, metrics = fit_objective(objective, w, data, turn, local)
        means = prototypes.from_client(task, w, data, local.batch_size)
        return w, prototypes.present(means), metrics

    return train


def complete(mean):
    """Prototypes of all classes: none is missing, not even in the first round."""
    return Prototypes(mean=mean, count=jnp.ones(len(mean)))


def draw(key, classes, width):
    """v from N(0, 1), and G as PyTorch draws its layers: within 1 / sqrt(e) of 0."""
    bound = width**-0.5
    within = partial(jax.random.uniform, minval=-bound, maxval=bound)

    def layer(purpose):
        kernel_key, bias_key = jax.random.split(derive(key, purpose))
        return within(kernel_key, (width, width)), within(bias_key, (width,))

    v = jax.random.normal(derive(key, "v"), (classes, width))
    return Server(v=v, network=(layer("first layer"), layer("second layer")))


def generate(server):
    """Q = G(v), f32[K, e]."""
    (kernel, bias), (last_kernel, last_bias) = server.network
    # An accelerator's default would round factors to a few bits.
    with jax.default_matmul_precision("highest"):
        hidden = jax.nn.relu(server.v @ kernel + bias)
        return hidden @ last_kernel + last_bias


def distances(a, b):
    """The distances between the vectors a [n, e] and b [K, e], f32[n, K]."""
    square = jnp.sum((a[:, None] - b) ** 2, -1)
    return prototypes.norm(square)


def margin(means, weight):
    """The largest distance between the means of two classes that were uploaded."""
    total = jnp.sum(weight, 0)
    centre = jnp.einsum("mk,mke->ke", weight, means, precision="highest")
    centre /= jnp.maximum(total, 1)[:, None]
    both = (total > 0)[:, None] & (total > 0)
    return jnp.max(jnp.where(both, distances(centre, centre), 0))


def contrast(means, global_means, m):
    """Logits [M K, K] of the uploads [M, K, e]: minus distances, less m at class j."""
    clients, classes, width = means.shape
    distance = distances(means.reshape(-1, width), global_means)
    is_own = jnp.tile(jnp.eye(classes), (clients, 1))
    return -distance - m * is_own
