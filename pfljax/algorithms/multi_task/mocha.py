"""MOCHA: clients train linear models, and the server learns how these are related.

Smith et al., NeurIPS 2017, https://arxiv.org/abs/1705.10467 (Algorithm 1).

    Server   b_t and w_t of every client t; Sigma, the relations of the clients
    Client   alpha_t, a dual variable for each training example and class
    Message  w_t, and how far it moves for a change of b_t
    Upload   the change of b_t

For a model that is linear in its parameters, with the hinge loss of each class against
all others (for two classes this is one problem twice). All clients together minimise
sum_t mean_i hinge(y_i <x_i, w_t>) + lam / 2 tr(W Sigma^-1 W^T)  over W = (w_1 .. w_C)
and Sigma >= 0 of trace 1. In the dual,  w_t = sum_s Sigma_ts b_s / lam,  where
b_s = sum_i alpha_i x_i / n_s. Client t ascends in alpha_t (`_dual_ascent`) as if its
model moved by  rho Sigma_tt / lam  times the change of b_t, where
rho = max_t sum_s |Sigma_ts| / Sigma_tt  leaves room for the simultaneous changes of the
others. After every `period` rounds the server sets
Sigma = (W^T W)^(1/2) / tr (W^T W)^(1/2),  where the eigenvalues of W^T W are at least
1e-7. Sigma starts at 1 / C times the identity: until then the clients are separate
support vector machines with the penalty C lam / 2.

`local` sets how many examples are visited; there is no learning rate here. Less work
means fewer visits, and a client that drops out changes nothing
(`selection.stragglers`).

`relations(server)` gives the relations of the clients, for a figure. A client that
never took part is evaluated with the mean of the models.

Differs from the paper: the bias of a model is penalised like a weight. After Sigma is
updated, clients train on with w_t of the new Sigma, as in the paper; the published code
keeps the old w_t. Clients are evaluated with the models that Sigma was computed from.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms._affinity import Models
from pfljax.algorithms.local import local as alone
from pfljax.algorithms.multi_task._dual_ascent import ascend
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Positive
from pfljax.core.types import Algorithm, Array, Local, Params, Task, zero_origin

FLOOR = 1e-7  # of the eigenvalues of W^T W


class Server(NamedTuple):
    """The models of the clients, and their relations."""

    models: Models  # w_t, with which clients are evaluated
    b: Params  # leaves [C, ...]
    sigma: Any  # f32[C, C]


class Message(NamedTuple):
    """A client's model, and how far it moves for a change of its b."""

    w: Params
    stretch: Any  # f32[], rho Sigma_tt / lam


@component
def mocha(
    task: Task,
    local: Local,
    *,
    lam: Positive = 0.001,
    period: AtLeastOne = 10,
    max_examples: AtLeastOne = 1,
) -> Algorithm:
    """Builds MOCHA; in a run of up to `period` rounds, clients train separately.

    Args:
      task: a model that is linear in its parameters, such as logistic.
      local: which examples a client visits.
      lam: penalty of the models, which their relations divide among the clients.
      period: rounds between two updates of the relations; 100 of 1,000 rounds in the
        published code.
      max_examples: number of training examples of the largest client.
    """

    def init_client(params, client_id, key):
        return jnp.zeros((max_examples, task.num_classes))

    def message(turn, server, alpha):
        weight = tree.take_or(server.sigma, turn.id) / lam
        w = aggregation.weighted_sum(server.b, weight)
        return Message(w, room(server.sigma) * weight.at[turn.id].get(mode="clip"))

    def train(turn, message, alpha, data):
        w, stretch = message
        return ascend(task, w, alpha, data, turn, local, stretch)

    def aggregate(server, changes, cohort):
        before = tree.take(server.b, cohort.ids)
        b = aggregation.record(server.b, tree.add(before, changes), cohort)
        w = aggregation.weighted_sum(b, server.sigma / lam)
        heard = aggregation.record(server.models.heard, 1, cohort)
        is_time = (cohort.round + 1) % period == 0
        sigma = jax.lax.cond(is_time, relate, lambda w: server.sigma, w)
        return Server(Models(w, heard), b, sigma)

    return alone(task, local)._replace(
        classes=True,
        init=init,
        init_client=init_client,
        message=message,
        train=train,
        aggregate=aggregate,
        personal=lambda turn, server, alpha, data: client_model(turn, server),
        newcomer=lambda turn, server, data: client_model(turn, server),
        origin=zero_origin,
        uploads_by_client=True,
        linear=True,
    )


def init(params, num_clients, key):
    """Models of zeros, and clients without relations."""
    models = affinity.first_models(tree.zeros(params), num_clients)
    sigma = jnp.eye(num_clients) / num_clients
    return Server(models, b=models.params, sigma=sigma)


def client_model(turn, server):
    """w_t, or the mean model for a client that has never sent anything."""
    w = tree.take_or(server.models.params, turn.id)
    heard = affinity.has_sent(server.models, turn.id)
    return tree.where(heard, w, affinity.mean(server.models))


def relations(server: Server) -> Array:
    """Sigma as correlations, f32[C, C]: 1 for clients whose models are parallel."""
    spread = jnp.sqrt(jnp.diag(server.sigma))
    return server.sigma / jnp.outer(spread, spread)


def room(sigma):
    """rho, f32[]: 1 without relations, and C if all clients are equal."""
    return jnp.max(jnp.sum(jnp.abs(sigma), 1) / jnp.diag(sigma))


def relate(models):
    """Sigma of the models W, leaves [C, ...]."""
    leaves = [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(models)]
    # By singular values: roots of the eigenvalues of W^T W have half of the digits.
    u, roots, _ = jnp.linalg.svd(jnp.concatenate(leaves, 1), full_matrices=False)
    floor = FLOOR**0.5
    above = jnp.maximum(roots - floor, 0)
    root = floor * jnp.eye(len(u)) + jnp.matmul(u * above, u.T, precision="highest")
    return root / jnp.trace(root)
